#include "tests/gpu/exporter.h"

#include <absl/strings/escaping.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "tests/gpu/descriptor_line.h"

namespace kvkeep {
namespace {

constexpr int kAnswerMs = 60'000;

}  // namespace

Exporter::Exporter() {
  std::array<int, 2> ends;
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
  std::string name = "gpu_exporter";
  std::array<char*, 2> arguments = {name.data(), nullptr};
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDIN_FILENO);
    execv(GPU_EXPORTER_PATH, arguments.data());
    _exit(98);
  }
  close(ends[1]);
  socket_ = UniqueFd(ends[0]);
  REQUIRE(pid_ > 0);
}

Exporter::~Exporter() {
  if (pid_ <= 0) return;
  socket_.Reset();  // it ends by itself, in order
  waitpid(pid_, nullptr, 0);
}

std::string Exporter::Ask(const std::string& line, UniqueFd* came) {
  INFO("asked: " << line);
  REQUIRE(SendLine(socket_.get(), line, -1));
  pollfd readable{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  REQUIRE(poll(&readable, 1, kAnswerMs) == 1);
  UniqueFd unwanted;
  const std::string answer = ReceiveLine(socket_.get(), came == nullptr ? &unwanted : came);
  INFO("answered: " << answer);
  REQUIRE(answer.rfind("ok", 0) == 0);
  return answer.substr(2);
}

CUipcMemHandle Exporter::Alloc(uint64_t bytes, int seed) {
  const std::string raw = absl::HexStringToBytes(
      Ask("alloc " + std::to_string(bytes) + " " + std::to_string(seed)).substr(1));
  CUipcMemHandle handle = {};
  REQUIRE(raw.size() == sizeof(handle.reserved));
  std::memcpy(handle.reserved, raw.data(), raw.size());
  return handle;
}

UniqueFd Exporter::AllocVmm(uint64_t bytes, int seed) {
  UniqueFd memory;
  Ask("vmm " + std::to_string(bytes) + " " + std::to_string(seed), &memory);
  REQUIRE(memory.valid());
  return memory;
}

bool Exporter::Holds(int seed) { return Ask("holds " + std::to_string(seed)) == " yes"; }

void Exporter::Free() { Ask("free"); }

bool Exporter::DiesFreeing() {
  REQUIRE(SendLine(socket_.get(), "free", -1));
  int status = 0;
  REQUIRE(waitpid(std::exchange(pid_, 0), &status, 0) > 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

void Exporter::Kill() {
  REQUIRE(kill(pid_, SIGKILL) == 0);
  REQUIRE(waitpid(std::exchange(pid_, 0), nullptr, 0) > 0);
}

}  // namespace kvkeep
