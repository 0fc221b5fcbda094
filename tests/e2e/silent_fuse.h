// SilentFuse: a file of a FUSE server that lets this process open and close it, and answers no
// other process: no fstat(2), no close(2).
//
// The server is a process of its own, which dies with this one; waits for it then end. Start no
// other process between opening the file and End, as it would inherit the file for a moment. The
// file system is mounted in a mount namespace of this thread.
#pragma once

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "tests/fakes/scratch_dir.h"
#include "tests/tiers/host/child_process.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::e2e {

class SilentFuse {
 public:
  SilentFuse() {
    static const bool entered = EnterMountNamespace();
    UniqueFd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    const std::string options =
        "fd=" + std::to_string(device.get()) + ",rootmode=40000,user_id=0,group_id=0";
    if (!entered || !device.valid() ||
        mount("kvkeep-test", dir_.path().c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) !=
            0) {
      WARN("skipped: no FUSE server may be mounted here");
      return;
    }
    const pid_t parent = getpid();
    server_ = fork();
    REQUIRE(server_ >= 0);
    if (server_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() == parent) Serve(device.get(), parent);
      _exit(0);
    }
  }
  ~SilentFuse() { End(); }
  SilentFuse(const SilentFuse&) = delete;
  SilentFuse& operator=(const SilentFuse&) = delete;

  bool mounted() const { return server_ > 0; }
  // Opens another descriptor of the file.
  UniqueFd Make() {
    if (!file_.valid()) file_ = UniqueFd(open((dir_ / "file").c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(file_.valid());
    return UniqueFd(fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  }
  // Ends the server, and so waits for it, with an error.
  void End() {
    if (!mounted()) return;
    kill(server_, SIGKILL);
    waitpid(std::exchange(server_, -1), nullptr, 0);
    file_.Reset();
    umount2(dir_.path().c_str(), MNT_DETACH);
  }

 private:
  // Runs in the child of a process with threads: makes system calls only.
  static void Serve(int device, pid_t opener) {
    std::array<char, FUSE_MIN_READ_BUFFER + (64 << 10)> buffer;
    while (true) {
      const ssize_t got = read(device, buffer.data(), buffer.size());
      if (got < static_cast<ssize_t>(sizeof(fuse_in_header))) {
        if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT)) continue;
        return;
      }
      fuse_in_header in;
      std::memcpy(&in, buffer.data(), sizeof(in));
      Answer(device, in, opener);
    }
  }

  static bool IsOf(pid_t opener, uint32_t thread) {
    std::array<char, 64> path;
    snprintf(path.data(), path.size(), "/proc/%d/task/%u", opener, thread);
    return access(path.data(), F_OK) == 0;
  }

  static void Answer(int device, const fuse_in_header& in, pid_t opener) {
    if (in.opcode == FUSE_INIT) {
      fuse_init_out out{};
      out.major = FUSE_KERNEL_VERSION;
      out.minor = FUSE_KERNEL_MINOR_VERSION;
      out.max_write = 4096;
      return Reply(device, in, out);
    }
    if (!IsOf(opener, in.pid)) return;
    fuse_attr attributes{};
    attributes.ino = in.nodeid;
    attributes.nlink = 1;
    if (in.opcode == FUSE_LOOKUP) {
      fuse_entry_out out{};
      out.nodeid = 2;
      out.attr = attributes;
      out.attr.ino = 2;
      out.attr.mode = S_IFREG | 0644;
      Reply(device, in, out);
    } else if (in.opcode == FUSE_GETATTR) {
      fuse_attr_out out{};
      out.attr = attributes;
      out.attr.mode = in.nodeid == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0644;
      Reply(device, in, out);
    } else if (in.opcode == FUSE_OPEN) {
      Reply(device, in, fuse_open_out{});
    } else if (in.opcode == FUSE_FLUSH) {
      const fuse_out_header out{sizeof(out), 0, in.unique};
      [[maybe_unused]] const ssize_t sent = write(device, &out, sizeof(out));
    }
  }

  template <typename Body>
  static void Reply(int device, const fuse_in_header& in, const Body& body) {
    struct {
      fuse_out_header header;
      Body body;
    } out{{sizeof(out), 0, in.unique}, body};
    [[maybe_unused]] const ssize_t sent = write(device, &out, sizeof(out));
  }

  const ScratchDir dir_;
  pid_t server_ = -1;
  UniqueFd file_;
};

}  // namespace kvkeep::e2e
