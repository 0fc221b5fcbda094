#include "tests/tiers/failing_calls/descriptors.h"

#include <filesystem>
#include <string>

namespace kvkeep {

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

bool IsOneLine(const absl::Status& status) {
  const std::string text(status.message());
  return !text.empty() && text.find('\n') == std::string::npos;
}

}  // namespace kvkeep
