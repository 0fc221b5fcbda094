#include "tests/sick/sick_disk.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/tiers/host/child_process.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::sick {
namespace {

using std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(20);

// Returns the command's output, without its last newline.
std::string Shell(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "re");
  if (pipe == nullptr) throw std::runtime_error("popen: " + command);
  std::string out;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) out += static_cast<char>(c);
  if (pclose(pipe) != 0) throw std::runtime_error(command + ": " + out);
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

void Await(const char* what, const std::function<bool()>& condition) {
  const auto give_up = steady_clock::now() + kPatience;
  while (!condition()) {
    if (steady_clock::now() > give_up) throw std::runtime_error(std::string("never: ") + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // for another process
  }
}

// Starts a program; its output goes to `log`.
pid_t Spawn(std::vector<std::string> words, const std::string& log) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const UniqueFd out(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out.get(), STDOUT_FILENO);
    dup2(out.get(), STDERR_FILENO);
    execvp(arguments[0], arguments.data());
    _exit(98);
  }
  if (pid < 0) throw std::runtime_error("fork");
  return pid;
}

void End(int pid) {
  if (pid <= 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

bool HaveProgram(const char* name) {
  return std::system((std::string("command -v ") + name + " >/dev/null").c_str()) == 0;
}

template <typename T>
void Set(T& field, T value) {
  __atomic_store_n(&field, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T Read(const T& field) {
  return __atomic_load_n(&field, __ATOMIC_SEQ_CST);
}

}  // namespace

std::string WhyNoSickDisk() {
  if (geteuid() != 0) return "needs root";
  for (const char* device : {"/dev/fuse", "/dev/loop-control"}) {
    if (access(device, R_OK | W_OK) != 0) return std::string("no ") + device;
  }
  for (const char* program : {"nbdkit", "nbdfuse", "losetup", "mkfs.ext4", "fusermount3"}) {
    if (!HaveProgram(program)) return std::string("no ") + program;
  }
  if (std::string(SICK_DISK_PLUGIN).empty()) return "built without nbdkit's header";
  static const bool entered = EnterMountNamespace();
  return entered ? "" : kNotPermitted;
}

SickDisk::SickDisk(const std::string& size) {
  for (const char* name : {"nbd", "fs"}) mkdir((scratch_ / name).c_str(), 0700);
  const std::string control = scratch_ / "control";
  const UniqueFd fd(open(control.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid() || ftruncate(fd.get(), sizeof(SickDiskControl)) != 0) {
    throw std::runtime_error("cannot make " + control);
  }
  void* const at =
      mmap(nullptr, sizeof(SickDiskControl), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap");
  control_ = static_cast<SickDiskControl*>(at);
  StartProcesses(size);
  const std::string loop = Shell("losetup --find --show " + scratch_ / "nbd/nbd");
  Shell("mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 " + loop);
  Shell("losetup -d " + loop);
  Mount();
}

void SickDisk::StartProcesses(const std::string& size) {
  const std::string socket = scratch_ / "socket";
  nbdkit_ = Spawn({"nbdkit", "-f", "-t", "64", "-U", socket, SICK_DISK_PLUGIN, "size=" + size,
                   "control=" + (scratch_ / "control")},
                  scratch_ / "nbdkit.log");
  Await("nbdkit listens", [&] { return access(socket.c_str(), F_OK) == 0; });
  nbdfuse_ = Spawn({"nbdfuse", scratch_ / "nbd", "--unix", socket}, scratch_ / "nbdfuse.log");
  Await("nbdfuse's file", [&] { return access((scratch_ / "nbd/nbd").c_str(), F_OK) == 0; });
}

SickDisk::~SickDisk() {
  Heal();
  try {
    Unmount();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  umount2(dir().c_str(), MNT_DETACH);
  End(nbdfuse_);
  umount2((scratch_ / "nbd").c_str(), MNT_DETACH);
  End(nbdkit_);
  if (control_ != nullptr) munmap(control_, sizeof(SickDiskControl));
}

void SickDisk::Mount() {
  const std::string loop = Shell("losetup --direct-io=on --find --show " + scratch_ / "nbd/nbd");
  // Given up here, the loop device ends with its last user, the mount.
  try {
    Shell("mount -o nodiscard " + loop + " " + dir());
  } catch (...) {
    Shell("losetup -d " + loop);
    throw;
  }
  Shell("losetup -d " + loop);
  mounted_ = true;
}

void SickDisk::Unmount() {
  if (!mounted_) return;
  Await("the file system is not in use", [&] { return umount(dir().c_str()) == 0; });
  mounted_ = false;
  // The kernel releases the file when it is done with it.
  Await("the loop device is gone", [&] { return LetGo(); });
}

void SickDisk::Detach() {
  Shell("umount --lazy " + dir());
  mounted_ = false;
}

bool SickDisk::LetGo() const {
  return Shell("losetup --associated " + scratch_ / "nbd/nbd").empty();
}

void SickDisk::RemountReadOnly() {
  // As the kernel does after an error: files that are open for writing stay open.
  Shell("mount -o remount,abort " + dir());
}

void SickDisk::FailWithEio(uint32_t kinds, uint32_t permille) {
  Set(control_->fail_permille, permille);
  Set(control_->fail, kinds);
}
void SickDisk::Hang(uint32_t kinds) { Set(control_->hang, kinds); }
void SickDisk::Delay(uint32_t kinds, uint32_t microseconds) {
  Set(control_->delay_us, microseconds);
  Set(control_->delay, kinds);
}
void SickDisk::Vanish() { Set(control_->gone, 1u); }
void SickDisk::Heal() {
  if (control_ == nullptr) return;
  for (uint32_t* field : {&control_->fail, &control_->hang, &control_->hold_flushes,
                          &control_->delay, &control_->gone}) {
    Set(*field, 0u);
  }
}

void SickDisk::HoldFlushes() {
  Set(control_->hold_flushes, 1u);
  Await("a write that is not flushed", [&] { return Read(control_->unflushed_writes) > 0; });
}

void SickDisk::CutPower(uint32_t kind, uint64_t seed) {
  Set(control_->cut_kind, kind);
  Set(control_->cut_seed, seed);
  const uint32_t request = Read(control_->cut_request) + 1;
  Set(control_->cut_request, request);
  Await("the power is cut", [&] { return Read(control_->cut_done) == request; });
}

void SickDisk::ShutDownFileSystem() {
  constexpr unsigned long kExt4Shutdown = _IOR('X', 125, uint32_t);
  uint32_t no_log_flush = 2;
  const UniqueFd fd(open(dir().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ioctl(fd.get(), kExt4Shutdown, &no_log_flush) != 0) {
    throw std::runtime_error("EXT4_IOC_SHUTDOWN");
  }
}

uint32_t SickDisk::hanging() const { return Read(control_->hanging); }
uint64_t SickDisk::failed() const { return Read(control_->failed); }
uint64_t SickDisk::lost_sectors() const { return Read(control_->lost_sectors); }

}  // namespace kvkeep::sick
