#include "client/grpc/tls_probe.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "client/internal/openssl_owned.h"
#include "client/transport/tcp_connect.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::client {
namespace {

using Clock = std::chrono::steady_clock;

// Blocks SIGPIPE on this thread: OpenSSL's writes raise it when the other side is gone. The signal
// goes to the thread that wrote, so the program's own handling is unaffected.
class SigpipeHeldOff {
 public:
  SigpipeHeldOff() {
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~SigpipeHeldOff() {
    const timespec at_once{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

std::string Shown(const X509_NAME* name) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_RFC2253);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(bytes));
}

std::string Shown(const ASN1_TIME* time) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(bytes));
}

std::string DnsNamesOf(X509* certificate) {
  std::vector<std::string> names;
  auto* all = static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(all); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(all, i);
    if (name->type != GEN_DNS) continue;
    names.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                       static_cast<size_t>(ASN1_STRING_length(name->d.dNSName)));
  }
  GENERAL_NAMES_free(all);
  return absl::StrJoin(names, ", ");
}

class Probe {
 public:
  Probe(const std::string& host, const SecurityOptions& options, const SecurityMaterial& material)
      : options_(options),
        host_(options.server_name.empty() ? host : options.server_name),
        own_(material.cert.empty() ? nullptr : FirstCertificate(material.cert)),
        context_(SSL_CTX_new(TLS_client_method())),
        ssl_(Configured(material)) {}

  std::string Run(int fd, Clock::time_point give_up) {
    if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd) != 1) return "";
    const std::string failed = Handshake(fd, give_up);
    if (!failed.empty()) return failed;
    if (X509* theirs = SSL_get0_peer_certificate(ssl_.get()); theirs != nullptr) {
      const std::string refused = JudgeTheirs(theirs);
      if (!refused.empty()) return refused;
    }
    const std::string ours = JudgeOurs();
    return ours.empty() ? AwaitFirstByte(fd, give_up) : ours;
  }

 private:
  SSL* Configured(const SecurityMaterial& material) {
    const Owned<BIO> ca = Over(material.ca);
    while (X509* next = PEM_read_bio_X509(ca.get(), nullptr, nullptr, nullptr)) {
      const Owned<X509> owned(next);
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), next);
    }
    // The handshake continues, so that the message can say more; the result is checked afterwards.
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_NONE, nullptr);
    if (own_ != nullptr) {
      const Owned<BIO> bio = Over(material.key);
      const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
      SSL_CTX_use_certificate(context_.get(), own_.get());
      if (key != nullptr) SSL_CTX_use_PrivateKey(context_.get(), key.get());
    }
    SSL* ssl = SSL_new(context_.get());
    constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(ssl, kHttp2, sizeof(kHttp2));
    X509_VERIFY_PARAM* expected = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(expected, host_.c_str()) != 1) {
      X509_VERIFY_PARAM_set1_host(expected, host_.c_str(), 0);
      SSL_set_tlsext_host_name(ssl, host_.c_str());
    }
    return ssl;
  }

  // Returns 0 to go on, else SSL_get_error's reason.
  int Wait(int result, int fd, Clock::time_point give_up) {
    const int error = SSL_get_error(ssl_.get(), result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return error;
    const short events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return AwaitReady(fd, events, give_up) ? 0 : SSL_ERROR_SYSCALL;
  }

  std::string Handshake(int fd, Clock::time_point give_up) {
    ERR_clear_error();
    while (true) {
      const int done = SSL_connect(ssl_.get());
      if (done == 1) return "";
      if (Wait(done, fd, give_up) == 0) continue;
      if (Clock::now() >= give_up) return "no answer to the TLS handshake in time";
      const int reason = ERR_GET_REASON(ERR_peek_last_error());
      if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_PACKET_LENGTH_TOO_LONG) {
        return "what answers there does not speak TLS: leave ca_file out, or have the daemon use "
               "it";
      }
      return absl::StrCat("the TLS handshake failed: ", Reason());
    }
  }

  static std::string Reason() {
    const char* reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason == nullptr ? "the other side closed the connection" : reason;
  }

  std::string JudgeTheirs(X509* theirs) const {
    const long verdict = SSL_get_verify_result(ssl_.get());
    switch (verdict) {
      case X509_V_OK:
        return "";
      case X509_V_ERR_CERT_HAS_EXPIRED:
        return absl::StrCat("the daemon's certificate has expired: ",
                            Shown(X509_get0_notAfter(theirs)));
      case X509_V_ERR_HOSTNAME_MISMATCH:
      case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return absl::StrCat("the daemon's certificate is not for ", host_, "; its DNS names are [",
                            DnsNamesOf(theirs), "]: use one in the endpoint, or set server_name");
      case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
      case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
      case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return absl::StrCat("the daemon's certificate is not signed by a CA in ", options_.ca_file,
                            ", but by ", Shown(X509_get_issuer_name(theirs)));
      default:
        return absl::StrCat("the daemon's certificate is not accepted: ",
                            X509_verify_cert_error_string(verdict));
    }
  }

  std::string JudgeOurs() const {
    const STACK_OF(X509_NAME)* wanted = SSL_get0_peer_CA_list(ssl_.get());
    if (sk_X509_NAME_num(wanted) <= 0) return "";  // it does not want one
    std::vector<std::string> names;
    bool known = false;
    for (int i = 0; i < sk_X509_NAME_num(wanted); ++i) {
      const X509_NAME* name = sk_X509_NAME_value(wanted, i);
      names.push_back(Shown(name));
      known =
          known || (own_ != nullptr && X509_NAME_cmp(name, X509_get_issuer_name(own_.get())) == 0);
    }
    const std::string signers = absl::StrCat("signed by ", absl::StrJoin(names, " or "));
    if (own_ == nullptr) {
      return absl::StrCat("the daemon wants a client certificate ", signers,
                          ": set cert_file and key_file");
    }
    if (X509_cmp_current_time(X509_get0_notAfter(own_.get())) < 0) {
      return absl::StrCat("our certificate in ", options_.cert_file,
                          " has expired: ", Shown(X509_get0_notAfter(own_.get())));
    }
    if (known) return "";
    return absl::StrCat("our certificate in ", options_.cert_file, " is signed by ",
                        Shown(X509_get_issuer_name(own_.get())), ", the daemon wants one ",
                        signers);
  }

  // In TLS 1.3 the other side checks our certificate when our side has finished.
  std::string AwaitFirstByte(int fd, Clock::time_point give_up) {
    char byte = 0;
    while (true) {
      const int got = SSL_read(ssl_.get(), &byte, 1);
      if (got == 1) return "";
      if (Wait(got, fd, give_up) == 0) continue;
      if (Clock::now() >= give_up) return "";
      return absl::StrCat("the daemon ended the connection after the TLS handshake: ", Reason());
    }
  }

  const SecurityOptions& options_;
  const std::string host_;
  const Owned<X509> own_;
  const Owned<SSL_CTX> context_;
  const Owned<SSL> ssl_;
};

// Returns what is wrong with TLS, or "" if nothing is or nobody listens.
std::string Explain(const std::string& endpoint, const SecurityOptions& options,
                    std::chrono::milliseconds timeout) {
  const auto give_up = Clock::now() + timeout;
  const SigpipeHeldOff held_off;
  const absl::StatusOr<SecurityMaterial> material = LoadSecurity(options);
  if (!material.ok()) return std::string(material.status().message());
  const absl::StatusOr<UniqueFd> fd = ConnectTcp(endpoint, give_up);
  if (!fd.ok()) return "";
  std::string why = Probe(HostOf(endpoint), options, *material).Run(fd->get(), give_up);
  ERR_clear_error();
  return why;
}

}  // namespace

absl::Status ExplainedByTls(absl::Status why, const std::string& endpoint,
                            const SecurityOptions& options, std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kMostPatience{2'000};
  if (!absl::IsUnavailable(why) || !options.tls() || HostOf(endpoint).empty()) return why;
  const std::string tls = Explain(endpoint, options, std::min(kMostPatience, patience));
  return tls.empty() ? why : absl::UnavailableError(absl::StrCat(endpoint, ": ", tls));
}

}  // namespace kvkeep::client
