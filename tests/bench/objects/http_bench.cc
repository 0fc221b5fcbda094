// kvkeep-http-bench: bytes a second that the one thread of a CurlEngine takes and sends for G4:
// bodies into and out of memory, over loopback, in plain and by TLS.
//
// The server has threads of its own, so with few cores the elapsed time says little. The CPU time
// of the engine's thread says what it can do with a core of its own and a fast server.
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <thread>

#include "tests/fakes/pki.h"
#include "tests/fakes/scratch_dir.h"
#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/objects/curl_engine.h"

namespace kvkeep {
namespace {

constexpr size_t kStep = 256 * kKiB;

UniqueFd ListenOnAnyPort(int* port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  KVKEEP_CHECK(bind(fd.get(), at, size) == 0 && listen(fd.get(), 128) == 0);
  KVKEEP_CHECK(getsockname(fd.get(), at, &size) == 0);
  *port = ntohs(address.sin_port);
  return fd;
}

// Answers each GET with this many bytes and each PUT with nothing, as long as clients ask.
class Server {
 public:
  Server(uint64_t body_bytes, const CertificateFiles* tls)
      : body_bytes_(body_bytes), listening_(ListenOnAnyPort(&port_)) {
    if (tls != nullptr) {
      context_ = SSL_CTX_new(TLS_server_method());
      constexpr int kPem = SSL_FILETYPE_PEM;
      KVKEEP_CHECK(SSL_CTX_use_certificate_file(context_, tls->cert.c_str(), kPem) == 1);
      KVKEEP_CHECK(SSL_CTX_use_PrivateKey_file(context_, tls->key.c_str(), kPem) == 1);
    }
    accepts_ = std::thread([this] {
      while (true) {
        const int fd = accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC);
        if (fd < 0) return;
        connections_.emplace_back([this, fd] { Serve(UniqueFd(fd)); });
      }
    });
  }
  // REQUIRES: all clients have gone.
  ~Server() {
    shutdown(listening_.get(), SHUT_RDWR);
    accepts_.join();
    for (std::thread& one : connections_) one.join();
    SSL_CTX_free(context_);
  }
  std::string url() const {
    return absl::StrCat(context_ == nullptr ? "http" : "https", "://127.0.0.1:", port_, "/x");
  }

 private:
  struct Peer {
    int fd;
    SSL* tls;
    int Read(char* to, size_t most) const {
      return tls != nullptr ? SSL_read(tls, to, static_cast<int>(most))
                            : static_cast<int>(recv(fd, to, most, 0));
    }
    bool Write(const char* from, size_t bytes) const {
      if (tls != nullptr) return SSL_write(tls, from, static_cast<int>(bytes)) > 0;
      for (size_t sent = 0; sent < bytes;) {
        const ssize_t some = send(fd, from + sent, bytes - sent, MSG_NOSIGNAL);
        if (some <= 0) return false;
        sent += static_cast<size_t>(some);
      }
      return true;
    }
  };

  void Serve(const UniqueFd& fd) {
    SSL* const tls = context_ == nullptr ? nullptr : SSL_new(context_);
    if (tls != nullptr) SSL_set_fd(tls, fd.get());
    if (tls == nullptr || SSL_accept(tls) == 1) {
      const Peer peer{fd.get(), tls};
      std::vector<char> buffer(kStep);
      while (AnswerOne(peer, buffer)) {
      }
    }
    SSL_free(tls);
  }

  bool AnswerOne(const Peer& peer, std::vector<char>& buffer) const {
    std::string head;
    size_t end = std::string::npos;
    while ((end = head.find("\r\n\r\n")) == std::string::npos) {
      const int some = peer.Read(buffer.data(), buffer.size());
      if (some <= 0) return false;
      head.append(buffer.data(), static_cast<size_t>(some));
    }
    if (absl::StartsWith(head, "PUT")) {
      constexpr absl::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      if (absl::StrContains(head, "Expect") && !peer.Write(kContinue.data(), kContinue.size())) {
        return false;
      }
      for (uint64_t come = head.size() - end - 4; come < body_bytes_;) {
        const int some = peer.Read(buffer.data(), buffer.size());
        if (some <= 0) return false;
        come += static_cast<uint64_t>(some);
      }
      const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
      return peer.Write(answer.data(), answer.size());
    }
    const std::string answer =
        absl::StrCat("HTTP/1.1 200 OK\r\nContent-Length: ", body_bytes_, "\r\n\r\n");
    if (!peer.Write(answer.data(), answer.size())) return false;
    for (uint64_t sent = 0; sent < body_bytes_; sent += kStep) {
      const size_t some = std::min<uint64_t>(kStep, body_bytes_ - sent);
      if (!peer.Write(buffer.data(), some)) return false;
    }
    return true;
  }

  const uint64_t body_bytes_;
  int port_ = 0;
  const UniqueFd listening_;
  SSL_CTX* context_ = nullptr;
  std::list<std::thread> connections_;  // of the accepting thread, until that has ended
  std::thread accepts_;
};

// Copies a body to its final place, as a read of G4 does.
class Into final : public HttpSink {
 public:
  explicit Into(uint64_t bytes) : memory_(bytes) {}
  absl::Status Begin(const HttpHead&) override {
    at_ = 0;
    return absl::OkStatus();
  }
  absl::Status Take(std::span<const std::byte> bytes) override {
    KVKEEP_CHECK(bytes.size() <= memory_.size() - at_);
    std::memcpy(memory_.data() + at_, bytes.data(), bytes.size());
    at_ += bytes.size();
    return absl::OkStatus();
  }

 private:
  std::vector<std::byte> memory_;
  size_t at_ = 0;
};

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Keeps `at_once` requests under way until `bytes` have arrived.
class Load {
 public:
  Load(HttpEngine* engine, std::string url, bool put, uint64_t body_bytes, uint64_t bytes)
      : engine_(*engine),
        url_(std::move(url)),
        put_(put),
        body_bytes_(body_bytes),
        body_(body_bytes, std::byte{1}),
        left_(DivideRoundUp(bytes, body_bytes)) {}

  void Run(int at_once, const char* what) {
    const auto began = std::chrono::steady_clock::now();
    const uint64_t all = left_ * body_bytes_;
    double cpu_began = 0;
    engine_.RunAt(MonotonicTime(0), [&] {
      cpu_began = ThreadSeconds();
      for (int i = 0; i < at_once; ++i) Next(std::make_shared<Into>(body_bytes_));
    });
    MutexLock lock(&mu_);
    while (!over_) changed_.Wait(&mu_);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::printf("%-12s %3d at once: %.2f GB/s, %.2f GB a second of the thread's CPU\n", what,
                at_once, static_cast<double>(all) / took.count() / 1e9,
                static_cast<double>(all) / (cpu_ended_ - cpu_began) / 1e9);
  }

 private:
  // Runs on the engine's thread.
  void Next(const std::shared_ptr<Into>& into) {
    if (left_ == 0) return;
    --left_;
    ++under_way_;
    HttpRequest request{.url = url_};
    if (put_) {
      request.method = "PUT";
      request.body = {body_};
    } else {
      request.sink = into.get();
    }
    engine_.Start(std::move(request), [this, into](HttpAnswer answer) {
      KVKEEP_CHECK(answer.status.ok() && answer.head.status == 200);
      --under_way_;
      Next(into);
      if (under_way_ > 0) return;
      cpu_ended_ = ThreadSeconds();
      MutexLock lock(&mu_);
      over_ = true;
      changed_.NotifyAll();
    });
  }

  HttpEngine& engine_;
  const std::string url_;
  const bool put_;
  const uint64_t body_bytes_;
  const std::vector<std::byte> body_;
  uint64_t left_, under_way_ = 0;
  double cpu_ended_ = 0;
  Mutex mu_;
  CondVar changed_;
  bool over_ = false;
};

void Run(uint64_t mib, uint64_t body_kib) {
  const ScratchDir dir;
  const TestCa ca(dir.path(), "bench");
  const CertificateFiles files = ca.Issue({.name = "server", .alt_names = "IP:127.0.0.1"});
  const uint64_t body = body_kib * kKiB;
  for (const bool tls : {false, true}) {
    const Server server(body, tls ? &files : nullptr);
    for (const bool put : {false, true}) {
      const auto engine =
          CurlEngine::Make({.ca_file = tls ? ca.cert_file() : ""}, RealClock()).value();
      for (const int at_once : {1, 8, 64}) {
        Load load(engine.get(), server.url(), put, body, mib * kMiB);
        load.Run(at_once, put ? (tls ? "PUT by TLS" : "PUT") : (tls ? "GET by TLS" : "GET"));
      }
    }
  }
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) {
  uint64_t mib = 4096, body_kib = 8192;
  for (int i = 1; i + 1 < argc; i += 2) {
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--mib") == 0) mib = value;
    if (std::strcmp(argv[i], "--body-kib") == 0) body_kib = value;
  }
  kvkeep::Run(mib, body_kib);
}
