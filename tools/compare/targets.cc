#include "tools/compare/targets.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/units.h"
#include "tools/bench/statistics.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::compare {
namespace {

constexpr uint64_t kAny = 0;

struct Rule {
  const char* what;  // as NameOf, or an NvmePart's
  uint64_t size, batch;
  const char* ours;
  const char* theirs;
  double at_least;
};

constexpr char kKvkeep[] = "kvkeep";
constexpr char kFio[] = "fio";

constexpr Rule kRules[] = {
    {"get", 32 * kMiB, 1, kKvkeepLocal, kMemcpy, 0.95},
    {"get", 4 * kMiB, 8, kKvkeepLocal, kMemcpy, 0.95},
    {"get", 4 * kMiB, 1, kKvkeepLocal, kMemcpy, 0.9},
    {"put", kAny, kAny, kKvkeepStaging, kMemcpy, 0.8},
    {"get", 4 * kMiB, 1, kKvkeepGrpc, kBareStream, 0.9},
    {"put", 4 * kMiB, 1, kKvkeepGrpc, kBareStream, 0.9},
    {"read", kAny, 1, kKvkeep, kFio, 0.95},
    {"first fill", kAny, 1, kKvkeep, kFio, 0.9},
    {"overwrite", kAny, 1, kKvkeep, kFio, 0.9},
    {"first put", kAny, kAny, kKvkeepLocal, kLmcache, 3},
    {"put", kMiB, 1, kKvkeepLocal, kLmcache, 1.5},
    {"lookup+get", kAny, kAny, kKvkeepLocal, kLmcache, 1},
    {"lookup", kAny, kAny, kKvkeepLocal, kLmcache, 100},
    {"get", kAny, kAny, kKvkeepLocal, kMooncake, 1},
    {"lookup+get", kAny, kAny, kKvkeepLocal, kMooncake, 1},
    {"lookup", kAny, kAny, kKvkeepLocal, kMooncake, 1},
    {"put", kAny, kAny, kKvkeepLocal, kMooncake, 0.7},
};

bool IsAbout(const Rule& rule, absl::string_view what, uint64_t size, uint64_t batch) {
  return what == rule.what && (rule.size == kAny || rule.size == size) &&
         (rule.batch == kAny || rule.batch == batch);
}

Verdict VerdictOf(const Rule& rule, std::string what, const std::vector<double>& ratios,
                  bool refused) {
  Verdict verdict{.what = std::move(what),
                  .ours = rule.ours,
                  .theirs = rule.theirs,
                  .target = rule.at_least,
                  .measured = bench::Summarize(ratios).median};
  verdict.outcome = refused                              ? Outcome::kRefused
                    : verdict.measured >= verdict.target ? Outcome::kMet
                                                         : Outcome::kMissed;
  return verdict;
}

}  // namespace

std::string OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kMet:
      return "met";
    case Outcome::kMissed:
      return "missed";
    case Outcome::kRefused:
      return "refused";
  }
  return "?";
}

std::vector<Verdict> Judge(const Comparison& comparison) {
  std::vector<Verdict> verdicts;
  for (const Rule& rule : kRules) {
    for (const Discipline& discipline : comparison.disciplines) {
      if (!IsAbout(rule, NameOf(discipline), discipline.size, discipline.batch)) continue;
      const std::vector<double> ratios = TimesAsFast(discipline, rule.ours, rule.theirs);
      if (ratios.empty()) continue;
      verdicts.push_back(VerdictOf(rule, absl::StrCat(rule.what, " ", CallName(discipline)), ratios,
                                   /*refused=*/false));
    }
    if (rule.theirs != absl::string_view(kFio)) continue;
    for (const NvmeResult& result : comparison.nvme) {
      for (const NvmePart& part : kNvmeParts) {
        if (!IsAbout(rule, part.name, result.size, 1)) continue;
        verdicts.push_back(
            VerdictOf(rule, absl::StrCat("NVMe ", part.name, " ", tools::FormatBytes(result.size)),
                      OfFio(result.*part.figures), part.reads && result.refused()));
      }
    }
  }
  return verdicts;
}

}  // namespace kvkeep::compare
