// Stands in for NIXL's common/nixl_log.h, which wants an Abseil with absl/log: Debian 12 has none.
// The build gives the compiler this file under that name. NIXL's headers use two of its macros.
//
// An error is one line of standard error, with "kvkeep:" before it. Thread-safe as a line is one
// write.
#pragma once

#include <cstdlib>
#include <iostream>
#include <sstream>

class KvkeepLogLine {
 public:
  KvkeepLogLine() { text_ << "kvkeep: "; }
  KvkeepLogLine(const KvkeepLogLine&) = delete;
  KvkeepLogLine& operator=(const KvkeepLogLine&) = delete;
  ~KvkeepLogLine() {
    text_ << '\n';
    std::cerr << text_.str() << std::flush;
  }

  template <typename T>
  KvkeepLogLine& operator<<(const T& what) {
    text_ << what;
    return *this;
  }

 private:
  std::ostringstream text_;
};

#define NIXL_ERROR KvkeepLogLine()
#define NIXL_ASSERT(condition) ((condition) ? void() : std::abort())
