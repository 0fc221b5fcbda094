// The authorities whose signatures of server certificates count: those of g4.ca_file, no others;
// without it the environment's, or the system's.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/fakes/pki.h"
#include "tests/fakes/scoped_variable.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/scripted_server.h"
#include "tiers/base/unique_fd.h"
#include "tiers/objects/curl_engine.h"

namespace kvkeep {
namespace {

// Accepts one connection after the other by TLS, and answers each with 204. SIGPIPE is ignored
// meanwhile, as the daemon has it: OpenSSL's writes raise it when the other side is gone.
class TlsServer {
 public:
  explicit TlsServer(const CertificateFiles& files) : context_(SSL_CTX_new(TLS_server_method())) {
    REQUIRE(SSL_CTX_use_certificate_file(context_, files.cert.c_str(), SSL_FILETYPE_PEM) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey_file(context_, files.key.c_str(), SSL_FILETYPE_PEM) == 1);
    listening_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listening_.get(), at, size) == 0);
    REQUIRE(listen(listening_.get(), 8) == 0);
    REQUIRE(getsockname(listening_.get(), at, &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~TlsServer() {
    shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
    SSL_CTX_free(context_);
    signal(SIGPIPE, before_);
  }
  std::string url() const { return absl::StrCat("https://127.0.0.1:", port_, "/"); }
  int port() const { return port_; }

 private:
  void Serve() {
    while (true) {
      const UniqueFd taken(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!taken.valid()) return;
      SSL* const tls = SSL_new(context_);
      SSL_set_fd(tls, taken.get());
      char request[4096];
      constexpr absl::string_view kAnswer = "HTTP/1.1 204 x\r\nConnection: close\r\n\r\n";
      if (SSL_accept(tls) == 1 && SSL_read(tls, request, sizeof(request)) > 0) {
        SSL_write(tls, kAnswer.data(), static_cast<int>(kAnswer.size()));
        SSL_shutdown(tls);
      }
      SSL_free(tls);
    }
  }

  const sighandler_t before_ = signal(SIGPIPE, SIG_IGN);
  SSL_CTX* const context_;
  UniqueFd listening_;
  int port_ = 0;
  std::thread thread_;
};

absl::Status Ask(const std::string& url, const std::string& ca_file,
                 const std::string& proxy = "") {
  const auto engine = CurlEngine::Make({.ca_file = ca_file, .proxy = proxy}, RealClock());
  REQUIRE(engine.ok());
  std::promise<absl::Status> told;
  (*engine)->Start({.url = url, .deadline = RealClock()->Now() + std::chrono::seconds(30)},
                   [&told](HttpAnswer answer) { told.set_value(answer.status); });
  return told.get_future().get();
}

// Named as in the system's folder of trusted certificates: by the hash of its name.
void Trust(const std::string& folder, const std::string& cert_file) {
  FILE* const file = fopen(cert_file.c_str(), "r");
  REQUIRE(file != nullptr);
  X509* const certificate = PEM_read_X509(file, nullptr, nullptr, nullptr);
  fclose(file);
  REQUIRE(certificate != nullptr);
  const std::string name = absl::StrFormat("%08x.0", X509_subject_name_hash(certificate));
  X509_free(certificate);
  std::filesystem::copy_file(cert_file, folder + "/" + name);
}

}  // namespace

TEST_CASE("with a CA of its own a bucket's server is trusted by that one alone") {
  const ScratchDir dir;
  const TestCa system(dir.path(), "system"), own(dir.path(), "own");
  const TlsServer of_system(system.Issue({.name = "a", .alt_names = "IP:127.0.0.1"}));
  const TlsServer of_own(own.Issue({.name = "b", .alt_names = "IP:127.0.0.1"}));
  CHECK(Ask(of_own.url(), own.cert_file()).ok());
  CHECK_FALSE(Ask(of_own.url(), system.cert_file()).ok());
  CHECK_FALSE(Ask(of_own.url(), "").ok());

  const char* const folder = curl_version_info(CURLVERSION_NOW)->capath;
  if (folder == nullptr || geteuid() != 0) {
    WARN("skipped: needs root, and a libcurl with a folder of certificates");
    return;
  }
  // Runs on a thread with mounts of its own, as the engine's thread that it starts has.
  std::filesystem::create_directory(dir / "trusted");
  Trust(dir / "trusted", system.cert_file());
  std::filesystem::copy_file(own.cert_file(), dir / "trusted/ca-certificates.crt");
  bool mounted = false;
  absl::Status by_system, beside_own, by_own;
  std::thread([&] {
    mounted = unshare(CLONE_FS | CLONE_NEWNS) == 0 &&
              mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
              mount((dir / "trusted").c_str(), folder, nullptr, MS_BIND, nullptr) == 0;
    if (!mounted) return;
    by_system = Ask(of_system.url(), "");
    beside_own = Ask(of_system.url(), own.cert_file());
    by_own = Ask(of_own.url(), own.cert_file());
  }).join();
  if (!mounted) {
    WARN("skipped: no mounts of its own");
    return;
  }
  INFO(by_system << beside_own << by_own);
  CHECK(by_system.ok());
  CHECK_FALSE(beside_own.ok());
  CHECK(by_own.ok());
}

TEST_CASE("CAs that the environment names are trusted, and give way to a CA of its own") {
  const ScratchDir dir;
  const TestCa named(dir.path(), "named"), own(dir.path(), "own");
  const TlsServer of_named(named.Issue({.name = "a", .alt_names = "IP:127.0.0.1"}));
  const TlsServer of_own(own.Issue({.name = "b", .alt_names = "IP:127.0.0.1"}));
  CHECK_FALSE(Ask(of_named.url(), "").ok());
  {
    const ScopedVariable file("SSL_CERT_FILE", named.cert_file());
    CHECK(Ask(of_named.url(), "").ok());
    CHECK_FALSE(Ask(of_named.url(), own.cert_file()).ok());
    CHECK(Ask(of_own.url(), own.cert_file()).ok());
  }
  {
    std::filesystem::create_directory(dir / "folder");
    Trust(dir / "folder", named.cert_file());
    const ScopedVariable folder("SSL_CERT_DIR", dir / "folder");
    CHECK(Ask(of_named.url(), "").ok());
    CHECK_FALSE(Ask(of_own.url(), "").ok());
  }
  const ScopedVariable lost("SSL_CERT_FILE", dir / "lost.pem");
  const absl::Status without = Ask(of_named.url(), "");
  CHECK(absl::IsFailedPrecondition(without));
  CHECK(absl::StrContains(without.message(), dir / "lost.pem"));
}

TEST_CASE("a bucket by https is asked through a proxy's tunnel, whose own answers are none of it") {
  const ScratchDir dir;
  const TestCa own(dir.path(), "own");
  const TlsServer server(own.Issue({.name = "b", .alt_names = "DNS:bucket.example"}));
  std::atomic<int> asked{0};
  std::atomic<bool> takes{true};
  const ScriptedServer proxy([&](ServedConnection& connection, int) {
    const std::string head = connection.ReadHead();
    if (!absl::StartsWith(head, "CONNECT bucket.example:443 HTTP/1.1\r\n")) return;
    ++asked;
    if (!takes) {
      connection.Send("HTTP/1.1 407 Not you\r\nContent-Length: 3\r\n\r\nno\n");
      return;
    }
    connection.Send("HTTP/1.1 200 There\r\nx-amz-request-id: of-the-proxy\r\n\r\n");
    connection.RelayTo(server.port());
  });
  const std::string url = "https://bucket.example/";
  CHECK(Ask(url, own.cert_file(), proxy.url("")).ok());
  CHECK(asked == 1);
  // The tunnel is no reason to trust its other end.
  CHECK_FALSE(Ask(url, "", proxy.url("")).ok());
  takes = false;
  CHECK(Ask(url, own.cert_file(), proxy.url("")).message() == "g4.proxy answered CONNECT with 407");
}

}  // namespace kvkeep
