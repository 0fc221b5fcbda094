// ScratchDir: a fresh directory below $TMPDIR (or /tmp), removed at the end of the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tiers/base/check.h"

namespace kvkeep {

class ScratchDir {
 public:
  ScratchDir() {
    std::string name = (std::filesystem::temp_directory_path() / "kvkeep-test-XXXXXX").string();
    KVKEEP_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ScratchDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace kvkeep
