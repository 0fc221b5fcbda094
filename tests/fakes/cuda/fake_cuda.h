// FakeCuda: sets the fake driver (README.md) of a test's own process, and of the processes that it
// starts.
//
//   FakeCuda fake;                               // before the driver is loaded
//   fake.Set("version 12080\nhang stream\n");
//
// Its destructor restores the defaults. One at a time; call Set only from the test's thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/fakes/scratch_dir.h"
#include "tiers/base/check.h"

namespace kvkeep {

class FakeCuda {
 public:
  static constexpr char kLibrary[] = KVKEEP_FAKE_CUDA_LIBRARY;

  FakeCuda() { Set(""); }
  ~FakeCuda() { Set(""); }
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  // Uses these settings from now on, and the defaults for all others.
  void Set(const std::string& lines) {
    const std::string fresh = Path() + ".new";
    std::ofstream(fresh) << lines;
    KVKEEP_CHECK(std::rename(fresh.c_str(), Path().c_str()) == 0);
  }

 private:
  static const std::string& Path() {
    static const ScratchDir dir;
    static const std::string path = [] {
      const std::string name = dir / "settings";
      KVKEEP_CHECK(setenv("KVKEEP_FAKE_CUDA", name.c_str(), 1) == 0);
      return name;
    }();
    return path;
  }
};

}  // namespace kvkeep
