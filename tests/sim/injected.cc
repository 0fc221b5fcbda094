#include "tests/sim/injected.h"

#include <absl/strings/str_cat.h>

namespace kvkeep {
namespace {

constexpr Injected::Kind kKinds[] = {
    {"read errors", &Injected::read_errors},
    {"corrupt reads", &Injected::corrupt_reads},
    {"short reads", &Injected::short_reads},
    {"misdirected reads", &Injected::misdirected_reads},
    {"write errors", &Injected::write_errors},
    {"corrupt writes", &Injected::corrupt_writes},
    {"torn writes", &Injected::torn_writes},
    {"misdirected writes", &Injected::misdirected_writes},
    {"delayed", &Injected::delayed, false},
    {"stuck", &Injected::stuck},
    {"refused while gone", &Injected::refused_gone},
    {"failed syncs", &Injected::failed_syncs},
    {"dropping syncs", &Injected::dropping_syncs, false},  // failed ones
    {"lying syncs", &Injected::lying_syncs},
    {"forgetful syncs", &Injected::forgetful_syncs},
    {"killed writes whole", &Injected::killed_whole, false},
    {"in part", &Injected::killed_partly, false},
    {"unwritten", &Injected::killed_unwritten, false},
    {"landed late", &Injected::landed_late, false},
    {"vanished", &Injected::vanished, false},
    {"drives without power", &Injected::drive_cuts},
    {"left out", &Injected::left_out, false},
    {"flipped bits", &Injected::flipped_bits},
    {"misplaced blocks", &Injected::misplaced_blocks},
    {"older blocks", &Injected::older_blocks},
    {"damaged arenas", &Injected::damaged_arenas, false},
    {"index refused", &Injected::index_refused},
    {"failed", &Injected::index_failed},
    {"lying syncs of it", &Injected::index_lying_syncs},
    {"forgetful ones", &Injected::index_forgetful_syncs},
    {"stalls", &Injected::index_stalls, false},
    {"tails lost", &Injected::lost_tails, false},
    {"writes lost", &Injected::lost_writes, false},
    {"failed but there", &Injected::phantoms, false},
    {"old over reused extents", &Injected::reused, false},
    {"clock steps", &Injected::clock_steps, false},
    {"suspensions", &Injected::suspensions, false},
};
static_assert(sizeof(Injected) == sizeof(uint64_t) * std::size(kKinds), "a kind is not listed");

}  // namespace

std::span<const Injected::Kind> Injected::Kinds() { return kKinds; }

void Injected::Add(const Injected& more) {
  for (const Kind& kind : kKinds) this->*kind.count += more.*kind.count;
}

uint64_t Injected::faults() const {
  uint64_t faults = 0;
  for (const Kind& kind : kKinds) faults += kind.fault ? this->*kind.count : 0;
  return faults;
}

std::string Injected::Describe() const {
  std::string text;
  for (const Kind& kind : kKinds) {
    absl::StrAppend(&text, text.empty() ? "" : " ", kind.name, " ", this->*kind.count);
  }
  return text;
}

std::vector<std::string> Injected::Missing() const {
  std::vector<std::string> missing;
  for (const Kind& kind : kKinds) {
    if (this->*kind.count == 0) missing.emplace_back(kind.name);
  }
  return missing;
}

}  // namespace kvkeep
