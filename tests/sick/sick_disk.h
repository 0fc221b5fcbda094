// SickDisk: a block device with an ext4 on it whose faults a test switches on and off: errors,
// delays, hangs, a power cut, gone and back. Below the kernel's own block layer and file system:
//
//   sick_disk.so in nbdkit -> nbdfuse (a file) -> losetup --direct-io=on -> ext4, mounted
//
// Everything is below one scratch directory and in this process's own mount namespace. Mount, loop
// device and processes end with the object, or with the test's process however that ends.
//
// One thread. System commands do the work; a command that fails is a std::runtime_error.
#pragma once

#include <cstdint>
#include <string>

#include "tests/fakes/scratch_dir.h"
#include "tests/sick/disk_control.h"

namespace kvkeep::sick {

// Returns why sick disks cannot be made here; empty if they can.
std::string WhyNoSickDisk();

class SickDisk {
 public:
  explicit SickDisk(const std::string& size = "512M");
  ~SickDisk();
  SickDisk(const SickDisk&) = delete;

  // The mount point of the file system.
  std::string dir() const { return scratch_ / "fs"; }

  void Mount();
  // Unmounts it in any state of the disk, even if its file system cannot write any more.
  void Unmount();
  // Unmounts a file system in use in two steps: it becomes invisible, and ends when the last
  // process closes it. LetGo returns whether it has ended, so that it can be mounted anew.
  void Detach();
  bool LetGo() const;
  void RemountReadOnly();

  // Masks of SICK_READS, SICK_WRITES, SICK_FLUSHES.
  void FailWithEio(uint32_t kinds, uint32_t permille = 1000);
  void Hang(uint32_t kinds);
  void Delay(uint32_t kinds, uint32_t microseconds);
  // From now on every request fails at once, hanging ones too.
  void Vanish();
  // Ends all faults. A vanished disk is back unchanged, or as the power cut left it.
  void Heal();
  // Makes all flushes hang. Returns when a write waits for one, which a cut then loses.
  void HoldFlushes();
  // Makes the disk vanish, and lose unflushed data: `kind` of SICK_CUT_*.
  void CutPower(uint32_t kind, uint64_t seed);
  // Calls the ioctl by which ext4 gives up all I/O at once, as if its drive were lost.
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
