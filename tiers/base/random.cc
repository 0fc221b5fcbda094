#include "tiers/base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

class KernelRandom final : public RandomSource {
 public:
  void Fill(std::span<std::byte> out) override {
    while (!out.empty()) {
      const ssize_t got = getrandom(out.data(), out.size(), 0);
      if (got < 0) {
        KVKEEP_CHECK(errno == EINTR);
        continue;
      }
      out = out.subspan(static_cast<size_t>(got));
    }
  }
};

}  // namespace

uint64_t RandomSource::NextU64() {
  uint64_t value = 0;
  Fill(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

RandomSource* RealRandom() {
  // Never destroyed: threads may outlive main.
  static KernelRandom* const random = new KernelRandom;
  return random;
}

}  // namespace kvkeep
