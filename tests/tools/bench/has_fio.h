// Whether there is fio, to compare with; says aloud that there is none.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>

namespace kvkeep::bench {

inline bool HasFio() {
  if (std::system("fio --version > /dev/null 2>&1") == 0) return true;
  WARN("skipped: there is no fio");
  return false;
}

}  // namespace kvkeep::bench
