// PatternDevice: what the drive below a pattern's daemon does without it, in the same run: fio's
// reads of a file on it (fio.h), before and after each rate. One thread.
#pragma once

#include <memory>
#include <string>

#include "tools/bench/fio.h"

namespace kvkeep::bench {

class PatternDevice {
 public:
  // `directory` is on the drive that the daemon's G3 is on; empty: nobody knows where that is.
  PatternDevice(const std::string& directory, bool quick);

  // Bytes a second, while the daemon does nothing; 0: not measured.
  double ReadRate();
  const std::string& why_not() const { return why_not_; }  // empty: it is measured

 private:
  std::unique_ptr<Fio> fio_;
  std::string why_not_;
};

}  // namespace kvkeep::bench
