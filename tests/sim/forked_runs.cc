#include "tests/sim/forked_runs.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "tests/fakes/coverage.h"
#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// A run takes a tenth of a second, under a sanitizer some seconds; one that takes this long hangs.
constexpr unsigned kMostSeconds = 300;

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0;
       (n = pread(fd, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

void Judge(int status, RunResult* result) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const std::string& output = result->output;
  const size_t check = output.find(": check failed: ");
  result->checked =
      WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && check != std::string::npos;
  if (!result->checked) {
    const bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    result->failure = hung ? absl::StrCat("hung: not over after ", kMostSeconds, " s")
                           : absl::StrCat("wait status ", status);
    return;
  }
  const size_t begin = output.rfind('\n', check) + 1;  // npos + 1 is 0
  result->failure = output.substr(begin, output.find('\n', check) - begin);
}

}  // namespace

struct ForkedRuns::Shared {
  uint64_t step = 0;
  SimulationReport report;
};

void ForkedRuns::Start(const SimulationOptions& options, Done done) {
  while (children_.size() >= jobs_) WaitForOne();
  Child child;
  child.done = std::move(done);
  child.output = memfd_create("output", MFD_CLOEXEC);  // a pipe might fill
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  KVKEEP_CHECK(child.output >= 0 && memory != MAP_FAILED);
  child.shared = new (memory) Shared();
  std::fflush(stdout);
  const pid_t pid = fork();
  KVKEEP_CHECK(pid >= 0);
  if (pid == 0) {
    dup2(child.output, STDOUT_FILENO);
    dup2(child.output, STDERR_FILENO);
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // nothing is lost by an abort
    alarm(kMostSeconds);
    SimulationOptions told = options;
    told.progress = &child.shared->step;
    child.shared->report = RunSimulation(told);
    std::fflush(stdout);
    WriteCoverage();
    _exit(0);
  }
  children_.emplace(pid, std::move(child));
}

void ForkedRuns::WaitForOne() {
  int status = 0;
  const pid_t pid = waitpid(-1, &status, 0);
  const auto found = children_.find(pid);
  KVKEEP_CHECK(found != children_.end());
  Child child = std::move(found->second);
  children_.erase(found);
  RunResult result{.output = ReadAll(child.output)};
  Judge(status, &result);
  result.last_step = child.shared->step;
  result.report = child.shared->report;
  close(child.output);
  munmap(child.shared, sizeof(Shared));
  child.done(result);
}

void ForkedRuns::WaitAll() {
  while (!children_.empty()) WaitForOne();
}

RunResult ForkedRuns::Run(const SimulationOptions& options) {
  RunResult result;
  ForkedRuns runs(1);
  runs.Start(options, [&result](const RunResult& ended) { result = ended; });
  runs.WaitAll();
  return result;
}

}  // namespace kvkeep
