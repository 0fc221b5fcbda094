// SickDisk: a block device with an ext4 on it whose faults a test switches on and off: errors,
// delays, hangs, a power cut, gone and back. Below the kernel's own block layer and file system:
//
//   sick_disk.so in nbdkit -> nbdfuse (a file) -> losetup --direct-io=on -> ext4, mounted
//
// Everything lies below one scratch directory and in this process's own mount namespace; mount,
// loop device and processes go with the object, or with the test's process however that ends.
//
// One thread. Commands of the system do the work; one that fails is a std::runtime_error.
#pragma once

#include <cstdint>
#include <string>

#include "tests/fakes/scratch_dir.h"
#include "tests/sick/disk_control.h"

namespace kvkeep::sick {

// Returns what keeps such disks from being made here; empty: nothing.
std::string WhyNoSickDisk();

class SickDisk {
 public:
  explicit SickDisk(const std::string& size = "512M");
  ~SickDisk();
  SickDisk(const SickDisk&) = delete;

  // Where the file system is mounted.
  std::string dir() const { return scratch_ / "fs"; }

  void Mount();
  // Whatever state the disk is in: a file system that cannot write any more goes too.
  void Unmount();
  // Unmounts in two steps, for a file system that is in use: it is seen no more, and gone when the
  // last process closes it. LetGo: whether it is gone; then it can be mounted anew.
  void Detach();
  bool LetGo() const;
  void RemountReadOnly();

  // Masks of SICK_READS, SICK_WRITES, SICK_FLUSHES.
  void FailWithEio(uint32_t kinds, uint32_t permille = 1000);
  void Hang(uint32_t kinds);
  void Delay(uint32_t kinds, uint32_t microseconds);
  // From now on every request fails at once, those that hang too.
  void Vanish();
  // Nothing is wrong any more. A vanished disk is back as it was, or as the power cut left it.
  void Heal();
  // No flush of anything ends any more, and at least one write waits for one: a cut now loses it.
  void HoldFlushes();
  // Gone, with a loss of what was not flushed: `kind` of SICK_CUT_*.
  void CutPower(uint32_t kind, uint64_t seed);
  // The ioctl by which ext4 gives up all I/O at once, as when its drive is lost.
  void ShutDownFileSystem();

  uint32_t hanging() const;
  uint64_t failed() const;
  uint64_t lost_sectors() const;

 private:
  void StartProcesses(const std::string& size);

  const ScratchDir scratch_;
  SickDiskControl* control_ = nullptr;
  int nbdkit_ = 0, nbdfuse_ = 0;
  bool mounted_ = false;
};

}  // namespace kvkeep::sick
