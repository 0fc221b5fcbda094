// SharedPages: memory of the page kind that a daemon's arena has, to measure copies on.
//
// Without a directory it is a memfd, mapped and advised as the arena; with one, a nameless file in
// the directory (the arena's mount). Create touches every page. Children do not inherit it.
#pragma once

#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "tiers/host/mapping.h"

namespace kvkeep::bench {

class SharedPages {
 public:
  // `mount_dir` may be empty. ResourceExhausted: not enough memory there.
  static absl::StatusOr<SharedPages> Create(uint64_t bytes, const std::string& mount_dir);
  // Creates the memory without touching its pages, for Touch.
  static absl::StatusOr<SharedPages> CreateUntouched(uint64_t bytes, const std::string& mount_dir);

  // Touches all pages with `threads` threads. REQUIRES: no page was touched before.
  absl::Status Touch(int threads);

  std::span<std::byte> memory() const { return mapping_.memory(); }
  // Returns how many of these bytes the kernel backs with huge pages (smaps).
  uint64_t huge_page_bytes() const;

 private:
  explicit SharedPages(Mapping mapping) : mapping_(std::move(mapping)) {}
  Mapping mapping_;
};

}  // namespace kvkeep::bench
