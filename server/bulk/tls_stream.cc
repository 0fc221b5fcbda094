#include "server/bulk/tls_stream.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "proto/bulk/frame.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr size_t kMostNames = 64;  // of each kind; further names are ignored

struct FreeTls {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename T>
using OwnedTls = std::unique_ptr<T, FreeTls>;

absl::Status TlsFailed(absl::string_view what) {
  const unsigned long code = ERR_peek_last_error();
  const char* const reason = ERR_reason_error_string(code);
  ERR_clear_error();
  return absl::InternalError(
      absl::StrCat("TLS: ", what, ": ", reason == nullptr ? "no reason given" : reason));
}

std::string PemOf(X509* certificate) {
  const OwnedTls<BIO> bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_X509(bio.get(), certificate) != 1) return "";
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(bytes));
}

void AddName(const ASN1_IA5STRING* name, std::vector<std::string>* names) {
  const auto* const text = reinterpret_cast<const char*>(ASN1_STRING_get0_data(name));
  const auto bytes = static_cast<size_t>(ASN1_STRING_length(name));
  const absl::string_view view(text, bytes);
  // A name with a zero byte would be read as another one elsewhere.
  if (names->size() < kMostNames && view.find('\0') == view.npos) names->emplace_back(view);
}

ShownCertificate ShownBy(const SSL* ssl) {
  ShownCertificate shown;
  const OwnedTls<X509> leaf(SSL_get1_peer_certificate(ssl));
  if (leaf == nullptr) return shown;
  shown.certificate = PemOf(leaf.get());
  STACK_OF(X509)* const between = SSL_get_peer_cert_chain(ssl);
  for (int i = 0; i < sk_X509_num(between); ++i) {
    shown.between += PemOf(sk_X509_value(between, i));
  }
  const OwnedTls<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(leaf.get(), NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) AddName(name->d.dNSName, &shown.dns_names);
    if (name->type == GEN_URI) AddName(name->d.uniformResourceIdentifier, &shown.uri_names);
  }
  return shown;
}

class TlsStream final : public ByteStream {
 public:
  TlsStream(ExpendableFd socket, OwnedTls<SSL> ssl)
      : socket_(std::move(socket)), ssl_(std::move(ssl)) {}

  Moved Read(absl::Span<const iovec> runs) override {
    return Move(runs, &read_needs_, [this](void* to, size_t bytes, size_t* moved) {
      const int done = SSL_read_ex(ssl_.get(), to, bytes, moved);
      if (done == 1 && !met_ && !Meet()) *moved = 0;
      return done;
    });
  }
  Moved Write(absl::Span<const iovec> runs) override {
    return Move(runs, &write_needs_, [this](const void* from, size_t bytes, size_t* moved) {
      return SSL_write_ex(ssl_.get(), from, bytes, moved);
    });
  }
  void EndWriting() override {
    ERR_clear_error();
    (void)SSL_shutdown(ssl_.get());
  }
  int fd() const override { return socket_.get(); }
  uint32_t read_needs() const override { return read_needs_; }
  uint32_t write_needs() const override { return write_needs_; }
  const ShownCertificate& shown() const override { return shown_; }

 private:
  // Notes what the other end showed. Returns false if it did not name the protocol.
  bool Meet() {
    const unsigned char* name = nullptr;
    unsigned int bytes = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &bytes);
    if (bytes == 0) return false;
    shown_ = ShownBy(ssl_.get());
    return met_ = true;
  }
  // Moves the bytes of all runs by `step`, as far as they go now. A step that moves nothing refuses
  // the other end.
  template <typename Step>
  Moved Move(absl::Span<const iovec> runs, uint32_t* needs, Step step) {
    size_t all = 0;
    for (const iovec& run : runs) {
      for (size_t at = 0; at < run.iov_len;) {
        size_t moved = 0;
        ERR_clear_error();
        const int done = step(static_cast<char*>(run.iov_base) + at, run.iov_len - at, &moved);
        if (done != 1) return Ended(done, all, needs);
        if (moved == 0) return {};
        at += moved;
        all += moved;
      }
    }
    return {Outcome::kMoved, all};
  }
  // Returns what a call that moved `all` bytes before it ended in `done` comes to.
  Moved Ended(int done, size_t all, uint32_t* needs) {
    const int error = SSL_get_error(ssl_.get(), done);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
      *needs = error == SSL_ERROR_WANT_READ ? EPOLLIN : EPOLLOUT;
      return {all > 0 ? Outcome::kMoved : Outcome::kWait, all};
    }
    ERR_clear_error();
    if (all > 0) return {Outcome::kMoved, all};  // the next call says it again
    return {error == SSL_ERROR_ZERO_RETURN ? Outcome::kClosed : Outcome::kBroken, 0};
  }

  const ExpendableFd socket_;
  const OwnedTls<SSL> ssl_;
  uint32_t read_needs_ = EPOLLIN, write_needs_ = EPOLLOUT;
  bool met_ = false;  // shown_ is set
  ShownCertificate shown_;
};

// Takes the protocol by its name, or ends the handshake.
int ChooseProtocol(SSL*, const unsigned char** out, unsigned char* out_bytes,
                   const unsigned char* offered, unsigned int offered_bytes, void*) {
  const absl::string_view wanted(bulk::kAlpn);
  for (unsigned int at = 0; at < offered_bytes;) {
    const unsigned int bytes = offered[at];
    if (bytes > offered_bytes - at - 1) break;
    const absl::string_view name(reinterpret_cast<const char*>(offered + at + 1), bytes);
    if (name == wanted) {
      *out = offered + at + 1;
      *out_bytes = static_cast<unsigned char>(bytes);
      return SSL_TLSEXT_ERR_OK;
    }
    at += 1 + bytes;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

OwnedTls<BIO> BioOf(const std::string& text) {
  return OwnedTls<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Shows the certificate chain and its key.
absl::Status UseCertificate(const TlsIdentity::Material& material, SSL_CTX* context) {
  const OwnedTls<BIO> chain = BioOf(material.cert_chain);
  const OwnedTls<X509> leaf(PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr));
  if (leaf == nullptr || SSL_CTX_use_certificate(context, leaf.get()) != 1) {
    return TlsFailed("certificate");
  }
  while (X509* const next = PEM_read_bio_X509(chain.get(), nullptr, nullptr, nullptr)) {
    const OwnedTls<X509> between(next);
    if (SSL_CTX_add1_chain_cert(context, next) != 1) return TlsFailed("certificate chain");
  }
  ERR_clear_error();  // the end of the text is an error to OpenSSL
  const OwnedTls<BIO> bio = BioOf(material.key);
  const OwnedTls<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1) return TlsFailed("key");
  return absl::OkStatus();
}

// Asks for the certificates of clients, which one of the CAs must have signed.
absl::Status AskForCertificates(const std::string& ca, SSL_CTX* context) {
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  const OwnedTls<BIO> bio = BioOf(ca);
  int added = 0;
  while (X509* const next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    const OwnedTls<X509> root(next);
    if (X509_STORE_add_cert(store, next) != 1 || SSL_CTX_add_client_CA(context, next) != 1) {
      return TlsFailed("client CA");
    }
    ++added;
  }
  ERR_clear_error();
  if (added == 0) return absl::InternalError("TLS: no client CA");
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return absl::OkStatus();
}

}  // namespace

struct TlsDoor::Context {
  Context() : ssl(SSL_CTX_new(TLS_server_method())) {}
  ~Context() { SSL_CTX_free(ssl); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  SSL_CTX* const ssl;  // null: OpenSSL refused
};

absl::StatusOr<std::shared_ptr<TlsDoor::Context>> TlsDoor::ContextNow() {
  const std::shared_ptr<const TlsIdentity::Material> now = identity_->current();
  {
    MutexLock lock(&mu_);
    if (context_ != nullptr && generation_ == now->generation) return context_;
  }
  auto fresh = std::make_shared<Context>();
  SSL_CTX* const context = fresh->ssl;
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1) {
    return TlsFailed("context");
  }
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_alpn_select_cb(context, ChooseProtocol, nullptr);
  KVKEEP_RETURN_IF_ERROR(UseCertificate(*now, context));
  if (identity_->wants_client_certificates()) {
    KVKEEP_RETURN_IF_ERROR(AskForCertificates(now->client_ca, context));
  }
  MutexLock lock(&mu_);
  context_ = fresh;
  generation_ = now->generation;
  return fresh;
}

absl::StatusOr<std::unique_ptr<ByteStream>> TlsDoor::Accept(ExpendableFd socket) {
  KVKEEP_ASSIGN_OR_RETURN(const std::shared_ptr<Context> context, ContextNow());
  OwnedTls<SSL> ssl(SSL_new(context->ssl));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), socket.get()) != 1) return TlsFailed("connection");
  SSL_set_accept_state(ssl.get());
  return std::make_unique<TlsStream>(std::move(socket), std::move(ssl));
}

}  // namespace kvkeep
