#include "client/bulk/stream.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "client/transport/tcp_connect.h"
#include "proto/bulk/frame.h"
#include "tiers/base/send_buffer.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

absl::Status BulkGone(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("bulk door: ", what));
}

absl::Status BulkFailed(absl::string_view what) {
  return BulkGone(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Returns OpenSSL's description of the last failure.
std::string TlsReason() {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return reason == nullptr ? "the connection ended" : reason;
}

absl::StatusOr<UniqueFd> ConnectUnix(absl::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return absl::InvalidArgumentError("bulk: too long");
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return BulkFailed("socket");
  WidenSendBuffer(fd.get());
  // On a Unix socket connect succeeds at once or not at all.
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return BulkFailed(path);
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BulkStream>> BulkStream::Connect(const std::string& endpoint,
                                                                const SecurityOptions& security,
                                                                Time deadline) {
  absl::string_view path = endpoint;
  if (absl::ConsumePrefix(&path, "unix:")) {
    absl::ConsumePrefix(&path, "//");
    KVKEEP_ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(path));
    return std::unique_ptr<BulkStream>(new BulkStream(std::move(fd)));
  }
  KVKEEP_ASSIGN_OR_RETURN(const SecurityMaterial material, LoadSecurity(security));
  KVKEEP_ASSIGN_OR_RETURN(UniqueFd fd, ConnectTcp(endpoint, deadline));
  std::unique_ptr<BulkStream> stream(new BulkStream(std::move(fd)));
  if (!material.token.empty()) stream->authorization_ = absl::StrCat("Bearer ", material.token);
  if (security.tls()) {
    const std::string host = security.server_name.empty() ? HostOf(endpoint) : security.server_name;
    KVKEEP_RETURN_IF_ERROR(stream->StartTls(material, host, deadline));
  }
  return stream;
}

BulkStream::~BulkStream() = default;

absl::Status BulkStream::StartTls(const SecurityMaterial& material, const std::string& host,
                                  Time deadline) {
  ERR_clear_error();
  context_.reset(SSL_CTX_new(TLS_client_method()));
  if (context_ == nullptr) return BulkGone(TlsReason());
  SSL_CTX_set_min_proto_version(context_.get(), TLS1_3_VERSION);
  SSL_CTX_set_mode(context_.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
  const Owned<BIO> roots = Over(material.ca);
  while (X509* const next = PEM_read_bio_X509(roots.get(), nullptr, nullptr, nullptr)) {
    const Owned<X509> root(next);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), next);
  }
  if (!material.cert.empty()) {
    const Owned<BIO> chain = Over(material.cert), key_text = Over(material.key);
    const Owned<X509> leaf(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
    const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
    if (leaf == nullptr || key == nullptr ||
        SSL_CTX_use_certificate(context_.get(), leaf.get()) != 1 ||
        SSL_CTX_use_PrivateKey(context_.get(), key.get()) != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("cert_file, key_file: cannot be used: ", TlsReason()));
    }
    while (X509* const next = PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr)) {
      const Owned<X509> between(next);
      SSL_CTX_add1_chain_cert(context_.get(), next);
    }
  }
  ERR_clear_error();  // the ends of the texts are errors to OpenSSL
  ssl_.reset(SSL_new(context_.get()));
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd_.get()) != 1) return BulkGone(TlsReason());
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl_.get());
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) != 1) {
    ERR_clear_error();  // not an address: a name
    if (SSL_set1_host(ssl_.get(), host.c_str()) != 1) return BulkGone(TlsReason());
    SSL_set_tlsext_host_name(ssl_.get(), host.c_str());
  }
  const std::string offered = absl::StrCat(std::string(1, sizeof(bulk::kAlpn) - 1), bulk::kAlpn);
  SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(offered.data()),
                      static_cast<unsigned int>(offered.size()));
  SSL_set_connect_state(ssl_.get());
  while (true) {
    ERR_clear_error();
    const int done = SSL_do_handshake(ssl_.get());
    if (done == 1) return absl::OkStatus();
    short events = 0;
    KVKEEP_RETURN_IF_ERROR(TlsMoved(done, 0, &events).status());
    KVKEEP_RETURN_IF_ERROR(Await(events, deadline));
  }
}

bool BulkStream::readable() const {
  if (ahead_begin_ < ahead_end_ || (ssl_ != nullptr && SSL_has_pending(ssl_.get()) == 1)) {
    return true;
  }
  pollfd polled{.fd = fd_.get(), .events = POLLIN | POLLRDHUP, .revents = 0};
  return poll(&polled, 1, 0) != 0;
}

absl::Status BulkStream::Await(short events, Time deadline) const {
  while (true) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return absl::DeadlineExceededError("bulk door: the deadline passed");
    pollfd polled{.fd = fd_.get(), .events = events, .revents = 0};
    constexpr int64_t kLongestWait = 60'000;
    const int ready = poll(&polled, 1, static_cast<int>(std::min(left.count(), kLongestWait)));
    if (ready == 1) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return BulkFailed("poll");
  }
}

absl::StatusOr<size_t> BulkStream::TlsMoved(int done, size_t moved, short* events) {
  const int error = SSL_get_error(ssl_.get(), done);
  switch (error) {
    case SSL_ERROR_NONE:
      return moved;
    case SSL_ERROR_WANT_READ:
      *events = POLLIN;
      return 0;
    case SSL_ERROR_WANT_WRITE:
      *events = POLLOUT;
      return 0;
    case SSL_ERROR_ZERO_RETURN:
      return BulkGone("the daemon closed the connection");
    default:
      return BulkGone(absl::StrCat("TLS: ", TlsReason()));
  }
}

absl::StatusOr<size_t> BulkStream::ReadNow(std::span<std::byte> to, short* events) {
  if (ssl_ != nullptr) {
    size_t moved = 0;
    ERR_clear_error();
    const int done = SSL_read_ex(ssl_.get(), to.data(), to.size(), &moved);
    return TlsMoved(done, moved, events);
  }
  const ssize_t came = recv(fd_.get(), to.data(), to.size(), 0);
  if (came > 0) return static_cast<size_t>(came);
  if (came == 0) return BulkGone("the daemon closed the connection");
  if (errno != EAGAIN && errno != EINTR) return BulkFailed("recv");
  *events = POLLIN;
  return 0;
}

absl::StatusOr<size_t> BulkStream::WriteNow(std::span<const std::byte> bytes, short* events) {
  if (ssl_ != nullptr) {
    size_t moved = 0;
    ERR_clear_error();
    const int done = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &moved);
    return TlsMoved(done, moved, events);
  }
  const ssize_t went = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (went >= 0) return static_cast<size_t>(went);
  if (errno != EAGAIN && errno != EINTR) return BulkFailed("send");
  *events = POLLOUT;
  return 0;
}

absl::StatusOr<size_t> BulkStream::ReadSome(std::span<std::byte> to, Time deadline) {
  if (ahead_begin_ < ahead_end_) {
    const size_t step = std::min(to.size(), ahead_end_ - ahead_begin_);
    std::memcpy(to.data(), ahead_.data() + ahead_begin_, step);
    ahead_begin_ += step;
    return step;
  }
  // A few bytes of a head or a message: what follows them comes by the same call.
  const bool is_small = to.size() < ahead_.size();
  while (true) {
    short events = 0;
    KVKEEP_ASSIGN_OR_RETURN(const size_t came,
                            ReadNow(is_small ? std::span<std::byte>(ahead_) : to, &events));
    if (came > 0 && !is_small) return came;
    if (came > 0) {
      ahead_begin_ = 0;
      ahead_end_ = came;
      return ReadSome(to, deadline);
    }
    KVKEEP_RETURN_IF_ERROR(Await(events, deadline));
  }
}

absl::Status BulkStream::Read(std::span<std::byte> to, Time deadline) {
  while (!to.empty()) {
    KVKEEP_ASSIGN_OR_RETURN(const size_t came, ReadSome(to, deadline));
    to = to.subspan(came);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> BulkStream::WriteSome(std::span<const std::byte> bytes, Time deadline) {
  while (true) {
    short events = 0;
    KVKEEP_ASSIGN_OR_RETURN(const size_t went, WriteNow(bytes, &events));
    if (went > 0 || readable()) return went;
    KVKEEP_RETURN_IF_ERROR(Await(static_cast<short>(events | POLLIN), deadline));
  }
}

void BulkStream::Break() { (void)shutdown(fd_.get(), SHUT_RDWR); }

}  // namespace kvkeep::client
