// Comparison: all that a run of kvkeep-compare measured, and the ratios that it is judged by. Plain
// values, pure functions.
#pragma once

#include <absl/strings/string_view.h>

#include <string>
#include <vector>

#include "tools/compare/contest.h"
#include "tools/compare/nvme.h"

namespace kvkeep::compare {

struct Comparison {
  bench::Json about;  // the machine, the versions, the options
  std::vector<std::string> names;
  std::vector<Discipline> disciplines;
  std::vector<NvmeResult> nvme;
};

// "get", "first put": what tables, rules and the JSON call it.
std::string NameOf(const Discipline& discipline);
// "8 x 4.0 MiB".
std::string CallName(const Discipline& discipline);
// Null: that one was not there.
const bench::Series* ResultsOf(const Discipline& discipline, const std::string& name);
// How many times as fast `ours` was as `theirs`, round by round: of lookups by the median call.
// Empty: one of them was not there.
std::vector<double> TimesAsFast(const Discipline& discipline, const std::string& ours,
                                const std::string& theirs);

// What of an NvmeResult is compared with fio, by its name.
struct NvmePart {
  absl::string_view name;
  BesideFio NvmeResult::*figures;
  bool reads;  // those may be refused
};
inline constexpr NvmePart kNvmeParts[] = {
    {"read", &NvmeResult::reads, true},
    {"first fill", &NvmeResult::first_fills, false},
    {"overwrite", &NvmeResult::overwrites, false},
};
// kvkeep's share of fio, round by round.
std::vector<double> OfFio(const BesideFio& figures);

// Bytes that were not what was put, all contestants together.
uint64_t WrongBytes(const Comparison& comparison);

}  // namespace kvkeep::compare
