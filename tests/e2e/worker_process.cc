#include "tests/e2e/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <utility>

#include "tests/fakes/fork_as.h"

namespace kvkeep::e2e {

WorkerProcess::WorkerProcess(const Site& site, const Options& options) {
  const auto number = [](const std::vector<TestChunk>& chunks) {
    return std::to_string(chunks.empty() ? 0 : chunks[0].number);
  };
  std::vector<std::string> words = {"local_client",
                                    site.endpoint(),
                                    number(options.warm),
                                    std::to_string(options.warm.size()),
                                    number(options.cold),
                                    std::to_string(options.cold.size()),
                                    std::to_string(options.warm.at(0).bytes),
                                    options.point,
                                    std::to_string(options.nth)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> out;
  REQUIRE(pipe2(out.data(), O_CLOEXEC) == 0);
  const auto made = [&] {
    pid_ = options.pid == 0 ? fork() : ForkAs(options.pid);
    return pid_ >= 0 || errno != EEXIST;
  };
  REQUIRE(Eventually(made));
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out[1], STDOUT_FILENO);
    execv(LOCAL_CLIENT_PATH, arguments.data());
    _exit(98);
  }
  close(out[1]);
  out_ = UniqueFd(out[0]);
  REQUIRE(pid_ > 0);
}

WorkerProcess::~WorkerProcess() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), out_(std::move(other.out_)) {}

std::string WorkerProcess::ReadLine(milliseconds timeout) {
  std::string line;
  while (true) {
    pollfd readable{.fd = out_.get(), .events = POLLIN, .revents = 0};
    char c = 0;
    if (poll(&readable, 1, static_cast<int>(timeout.count())) <= 0) return "";
    if (read(out_.get(), &c, 1) != 1) return "";
    if (c == '\n') return line;
    line += c;
  }
}

void WorkerProcess::Signal(int number) { REQUIRE(kill(pid_, number) == 0); }

int WorkerProcess::AwaitEnd() {
  int status = 0;
  REQUIRE(waitpid(pid_, &status, 0) == pid_);
  pid_ = 0;
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

}  // namespace kvkeep::e2e
