#include "tiers/objects/process_key_source.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/status_macros.h"
#include "tiers/objects/key_answers.h"

namespace kvkeep {
namespace {

constexpr size_t kMaxCommandBytes = 4096;

absl::Status NoCommand(absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the credential process ", why));
}

// A user who could change the program could act as the daemon.
absl::Status CheckProgram(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(
        absl::StrCat("the credential process: ", path, ": ", std::strerror(errno)));
  }
  const bool ours = info.st_uid == 0 || info.st_uid == geteuid();
  if (S_ISREG(info.st_mode) && ours && (info.st_mode & 0022) == 0) return absl::OkStatus();
  return NoCommand(absl::StrCat("is not run: ", path, " must be a file of root's or the daemon's ",
                                "user's that its group and others may not write"));
}

// Fails if the real user differs, as the program could become that user again.
absl::Status CheckUser() {
  if (getuid() == geteuid() && getgid() == getegid()) return absl::OkStatus();
  return NoCommand("is not run by a process that has taken on another user for a while");
}

// A program that was started: killed, with its group, unless it was waited for.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    static_cast<void>(Reap());
  }

  // For poll: readable once it has ended.
  UniqueFd Watch() const {
    return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));  // close-on-exec by itself
  }
  // Waits for its end, and returns the wait status.
  int Reap() {
    int how = 0;
    while (waitpid(pid_, &how, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return how;
  }

 private:
  pid_t pid_;
};

// Starts the program with its standard output on `out`.
absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& words, int out) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  KVKEEP_CHECK(posix_spawn_file_actions_init(&actions) == 0);
  KVKEEP_CHECK(posix_spawnattr_init(&attributes) == 0);
  sigset_t none, ignored;
  sigemptyset(&none);
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);  // as the daemon does
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (failed == 0) failed = posix_spawn_file_actions_adddup2(&actions, out, 1);
  if (failed == 0) failed = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  if (failed == 0) failed = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  if (failed == 0) failed = posix_spawnattr_setsigmask(&attributes, &none);
  if (failed == 0) failed = posix_spawnattr_setsigdefault(&attributes, &ignored);
  if (failed == 0) {
    failed = posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  pid_t pid = -1;
  if (failed == 0) {
    failed = posix_spawn(&pid, words[0].c_str(), &actions, &attributes, arguments.data(), environ);
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed == 0) return pid;
  return absl::UnavailableError(
      absl::StrCat("the credential process cannot be run: ", std::strerror(failed)));
}

// Waits until `fd` can be read, or has ended.
absl::Status AwaitReadable(int fd, int stop, MonotonicTime until, absl::string_view limit) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - RealClock()->Now());
    if (left.count() <= 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("the credential process ran longer than ", limit, " and was killed"));
    }
    pollfd waits[] = {{.fd = fd, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
    if (poll(waits, 2, static_cast<int>(left.count())) < 0) {
      if (errno == EINTR) continue;
      return absl::ErrnoToStatus(errno, "the credential process");
    }
    if (waits[1].revents != 0) return absl::CancelledError("stopped");
    if (waits[0].revents != 0) return absl::OkStatus();
  }
}

absl::Status Ended(int how) {
  if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return absl::OkStatus();
  return absl::UnavailableError(
      WIFEXITED(how)
          ? absl::StrCat("the credential process ended with status ", WEXITSTATUS(how))
          : absl::StrCat("the credential process was ended by signal ", WTERMSIG(how)));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> SplitKeyCommand(absl::string_view command) {
  if (command.size() > kMaxCommandBytes) {
    return NoCommand(absl::StrCat("has ", command.size(), " characters; the most are ",
                                  kMaxCommandBytes));
  }
  std::vector<std::string> words;
  bool in_word = false, quoted = false;
  for (const char c : command) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t') {
      return NoCommand("holds a control character");
    }
    if (!quoted && (c == ' ' || c == '\t')) {
      in_word = false;
      continue;
    }
    if (!std::exchange(in_word, true)) words.emplace_back();
    if (c == '"') {
      quoted = !quoted;
    } else {
      words.back().push_back(c);
    }
  }
  if (quoted) return NoCommand("has a '\"' without its end");
  if (words.empty() || words[0].empty() || words[0][0] != '/') {
    return NoCommand("must begin with the absolute path of a program");
  }
  return words;
}

absl::StatusOr<std::unique_ptr<ProcessKeySource>> ProcessKeySource::Make(
    absl::string_view command, std::chrono::milliseconds longest_run) {
  KVKEEP_ASSIGN_OR_RETURN(std::vector<std::string> words, SplitKeyCommand(command));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return absl::ErrnoToStatus(errno, "the credential process: eventfd");
  return std::unique_ptr<ProcessKeySource>(
      new ProcessKeySource(std::move(words), longest_run, std::move(stop)));
}

void ProcessKeySource::Stop() {
  static_cast<void>(eventfd_write(stop_.get(), 1));  // full: it is readable already
}

absl::StatusOr<std::string> ProcessKeySource::Run() const {
  KVKEEP_RETURN_IF_ERROR(CheckUser());
  KVKEEP_RETURN_IF_ERROR(CheckProgram(words_[0]));
  const MonotonicTime until = RealClock()->Now() + longest_run_;
  const std::string limit = absl::StrCat(longest_run_.count(), " ms");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "the credential process: pipe");
  }
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  KVKEEP_ASSIGN_OR_RETURN(const pid_t pid, Spawn(words_, in.get()));
  Child child(pid);
  in.Reset();
  // Reserves the full limit, so that no copy of a part is left behind.
  std::string said(kMaxSaidBytes + 1, '\0');
  size_t bytes = 0;
  absl::Status way;
  while (way.ok()) {
    way = AwaitReadable(out.get(), stop_.get(), until, limit);
    if (!way.ok()) break;
    const ssize_t got = read(out.get(), said.data() + bytes, said.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) way = absl::ErrnoToStatus(errno, "the credential process");
    if (got <= 0) break;
    bytes += static_cast<size_t>(got);
    if (bytes > kMaxSaidBytes) {
      way = absl::ResourceExhaustedError(absl::StrCat(
          "the credential process printed more than ", kMaxSaidBytes, " bytes"));
    }
  }
  // The program may go on after it has closed its output.
  const UniqueFd ended = child.Watch();
  if (way.ok() && !ended.valid()) way = absl::ErrnoToStatus(errno, "the credential process");
  if (way.ok()) way = AwaitReadable(ended.get(), stop_.get(), until, limit);
  if (way.ok()) way = Ended(child.Reap());
  if (!way.ok()) {
    OPENSSL_cleanse(said.data(), said.size());
    return way;
  }
  said.resize(bytes);
  return said;
}

void ProcessKeySource::Fetch(Done done) {
  absl::StatusOr<std::string> said = Run();
  if (!said.ok()) return std::move(done)(said.status());
  absl::StatusOr<S3Keys> keys = ParseProcessKeys(*said);
  OPENSSL_cleanse(said->data(), said->size());
  if (!keys.ok()) {
    return std::move(done)(absl::Status(
        keys.status().code(), absl::StrCat("the credential process: ", keys.status().message())));
  }
  std::move(done)(std::move(keys));
}

}  // namespace kvkeep
