// DaemonFixture: a real kvkeepd as a child process, on a scratch directory, for end-to-end tests.
//
// Start waits until GetServerInfo says that it serves. Kill is kill -9; Stop is SIGTERM and waits
// for the exit status. The directory outlives the process, so another Start is a warm restart. A
// child that still runs at the end is killed; it also dies with the test (PR_SET_PDEATHSIG).
// Environment KVKEEPD names the binary; by default it is beside the test's own binary. Not
// thread-safe.
#pragma once

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "tests/fakes/joining.h"
#include "tests/fakes/scratch_dir.h"

namespace kvkeep {

struct FixtureOptions {
  std::string g2_capacity = "64MiB";
  std::string g3_capacity = "256MiB";  // empty: no G3
  std::string drain_timeout = "10s";
  std::string more;  // YAML appended to the config
};

class DaemonFixture {
 public:
  using Options = FixtureOptions;

  explicit DaemonFixture(Options options = {}) { WriteConfig(options); }
  ~DaemonFixture() {
    if (running()) Kill();
  }
  DaemonFixture(const DaemonFixture&) = delete;
  DaemonFixture& operator=(const DaemonFixture&) = delete;

  bool running() const { return pid_ > 0; }
  pid_t pid() const { return pid_; }
  const std::string& dir() const { return dir_.path(); }
  std::string socket_path() const { return dir_ / "kvkeep.sock"; }
  std::string admin_socket_path() const { return dir_ / "admin.sock"; }
  std::string config_path() const { return dir_ / "kvkeep.yaml"; }
  // Returns everything that it wrote to stderr, over all its starts.
  std::string log() const {
    std::ifstream file(dir_ / "log");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  void Start() {
    Spawn();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!Serves()) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        FAIL("kvkeepd ended at its start:\n" << log());
      }
      if (std::chrono::steady_clock::now() > deadline) FAIL("kvkeepd does not serve:\n" << log());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the daemon to serve
    }
  }
  // Starts a daemon that must fail. Returns its exit status.
  int StartAndWait() {
    Spawn();
    return Wait();
  }
  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }
  // Returns the exit status; 128 + n if a signal n ended it.
  int Stop() {
    kill(pid_, SIGTERM);
    return Wait();
  }
  void Signal(int number) { kill(pid_, number); }
  int Wait() {
    int status = 0;
    REQUIRE(waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::shared_ptr<grpc::Channel> Channel() const { return Connect(socket_path()); }
  std::shared_ptr<grpc::Channel> AdminChannel() const { return Connect(admin_socket_path()); }
  v1::StatusResponse Status() const {
    v1::StatusResponse response;
    grpc::ClientContext context;
    const grpc::Status status = v1::Admin::NewStub(AdminChannel())->Status(&context, {}, &response);
    INFO(status.error_message());
    REQUIRE(status.ok());
    return response;
  }

 private:
  // Uses a channel of its own, so that it does not wait for another channel's backoff after a
  // restart.
  static std::shared_ptr<grpc::Channel> Connect(const std::string& path) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(8 << 20);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments);
  }

  static std::string Binary() {
    if (const char* named = std::getenv("KVKEEPD")) return named;
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "kvkeepd";
  }

  void WriteConfig(const Options& options) const {
    std::ofstream file(config_path());
    file << "listen: {unix: " << socket_path() << ", admin: " << admin_socket_path()
         << ", local: \"\"}\n"
         << "g2: {capacity: " << options.g2_capacity << ", arena: memfd}\n";
    if (options.g3_capacity.empty()) {
      file << "g3: {paths: []}\n";
    } else {
      file << "g3: {paths: [{dir: " << dir_ / "nvme0"
           << ", capacity: " << options.g3_capacity << "}]}\n";
    }
    file << "limits: {max_chunks: 100000}\n"
         << "metrics: {listen: \"\"}\n"
         << "state: {dir: " << dir_ / "state"
         << "}\n"
         << "drain: {timeout: " << options.drain_timeout << "}\n"
         << options.more;
  }

  void Spawn() {
    REQUIRE_FALSE(running());
    const std::string binary = Binary(), config = config_path(), log = dir_ / "log";
    const pid_t parent = getpid();
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    // Runs in the child: only calls that are safe between fork and exec of a process with threads.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (out >= 0) dup2(out, STDERR_FILENO);
    execl(binary.c_str(), "kvkeepd", "--config", config.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }

  bool Serves() const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    v1::GetServerInfoResponse response;
    return v1::KvCache::NewStub(Channel())->GetServerInfo(&context, {}, &response).ok() &&
           response.state() == v1::SERVING_STATE_SERVING && DevicesJoined();
  }

  // Devices may be offline, but none is joining.
  bool DevicesJoined() const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    v1::StatusResponse status;
    if (!v1::Admin::NewStub(AdminChannel())->Status(&context, {}, &status).ok()) return false;
    return !AnyDeviceJoins(status);
  }

  ScratchDir dir_;
  pid_t pid_ = -1;
};

}  // namespace kvkeep
