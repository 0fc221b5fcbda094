#include "tools/compare/targets.h"

#include <catch2/catch.hpp>
#include <optional>

#include "tests/tools/compare/made_up.h"
#include "tools/compare/report.h"

namespace kvkeep::compare {
namespace {

std::optional<Verdict> VerdictOn(const Comparison& comparison, const std::string& what,
                                 const std::string& theirs) {
  for (const Verdict& verdict : Judge(comparison)) {
    if (verdict.what == what && verdict.theirs == theirs) return verdict;
  }
  return std::nullopt;
}

Comparison Of(std::vector<Discipline> disciplines) {
  return {.about = {}, .names = {kMemcpy}, .disciplines = std::move(disciplines), .nvme = {}};
}

}  // namespace

TEST_CASE("each size and batch has its target, and a hair less is missed") {
  struct Row {
    Operation operation;
    uint64_t size, batch;
    const char *ours, *theirs, *what;
    double target;
    bool first_fill = false;
  };
  for (const Row& row : std::vector<Row>{
           {Operation::kGet, 32 * kMiB, 1, kKvkeepLocal, kMemcpy, "get 32.0 MiB", 0.95},
           {Operation::kGet, 4 * kMiB, 8, kKvkeepLocal, kMemcpy, "get 8 x 4.0 MiB", 0.95},
           {Operation::kGet, 4 * kMiB, 1, kKvkeepLocal, kMemcpy, "get 4.0 MiB", 0.9},
           {Operation::kPut, 32 * kMiB, 1, kKvkeepStaging, kMemcpy, "put 32.0 MiB", 0.8},
           {Operation::kGet, 4 * kMiB, 1, kKvkeepGrpc, kBareStream, "get 4.0 MiB", 0.9},
           {Operation::kPut, 4 * kMiB, 1, kKvkeepGrpc, kBareStream, "put 4.0 MiB", 0.9},
           {Operation::kPut, 4 * kMiB, 1, kKvkeepLocal, kLmcache, "first put 4.0 MiB", 3, true},
           {Operation::kPut, kMiB, 1, kKvkeepLocal, kLmcache, "put 1.0 MiB", 1.5},
           {Operation::kLookupAndGet, kMiB, 1, kKvkeepLocal, kLmcache, "lookup+get 1.0 MiB", 1},
           {Operation::kLookup, 4 * kKiB, 512, kKvkeepLocal, kLmcache, "lookup 512 x 4.0 KiB", 100},
           {Operation::kGet, kMiB, 8, kKvkeepLocal, kMooncake, "get 8 x 1.0 MiB", 1},
           {Operation::kLookup, 4 * kKiB, 512, kKvkeepLocal, kMooncake, "lookup 512 x 4.0 KiB", 1},
           {Operation::kPut, 32 * kMiB, 1, kKvkeepLocal, kMooncake, "put 32.0 MiB", 0.7}}) {
    INFO(row.what << " beside " << row.theirs);
    for (const double more : {1.05, 0.95}) {
      const Discipline discipline =
          DisciplineOf(row.operation, row.size, row.batch,
                       {{row.ours, row.target * more}, {row.theirs, 1}}, row.first_fill);
      const auto verdict = VerdictOn(Of({discipline}), row.what, row.theirs);
      REQUIRE(verdict.has_value());
      CHECK(verdict->target == row.target);
      CHECK(verdict->measured == Approx(row.target * more).epsilon(0.02));
      CHECK(verdict->outcome == (more > 1 ? Outcome::kMet : Outcome::kMissed));
    }
  }
}

TEST_CASE("nothing is said of what was not measured, or of what has no target") {
  CHECK(Judge({}).empty());
  CHECK(Judge(Of({DisciplineOf(Operation::kGet, 32 * kMiB, 1, {{kKvkeepLocal, 1}})})).empty());
  CHECK(Judge(Of({DisciplineOf(Operation::kGet, kMiB, 1, {{kKvkeepLocal, 1}, {kMemcpy, 1}})}))
            .empty());
}

TEST_CASE("NVMe is judged beside fio's better blocks") {
  Comparison comparison;
  comparison.nvme = {NvmeOf(4 * kMiB, 0.96, 1), NvmeOf(32 * kMiB, 0.89, 1)};
  CHECK(VerdictOn(comparison, "NVMe read 4.0 MiB", "fio")->outcome == Outcome::kMet);
  CHECK(VerdictOn(comparison, "NVMe read 4.0 MiB", "fio")->measured == Approx(0.96));
  CHECK(VerdictOn(comparison, "NVMe first fill 4.0 MiB", "fio")->target == 0.9);
  CHECK(VerdictOn(comparison, "NVMe overwrite 4.0 MiB", "fio")->outcome == Outcome::kMet);
  for (const char* part : {"read", "first fill", "overwrite"}) {
    CHECK(VerdictOn(comparison, std::string("NVMe ") + part + " 32.0 MiB", "fio")->outcome ==
          Outcome::kMissed);
  }
}

TEST_CASE("reads that did not come from NVMe are refused, and the report says so") {
  for (const double from_nvme : {0.5, 0.97, 0.99}) {
    Comparison comparison;
    comparison.names = {kMemcpy};
    comparison.nvme = {NvmeOf(4 * kMiB, 2.3, from_nvme)};
    const bool refused = from_nvme < 0.98;
    CHECK(comparison.nvme[0].refused() == refused);
    CHECK(comparison.nvme[0].from_nvme() == Approx(from_nvme));
    CHECK((VerdictOn(comparison, "NVMe read 4.0 MiB", "fio")->outcome == Outcome::kRefused) ==
          refused);
    CHECK(VerdictOn(comparison, "NVMe overwrite 4.0 MiB", "fio")->outcome == Outcome::kMet);
    CHECK((ToText(comparison).find("REFUSED") != std::string::npos) == refused);
    CHECK(ToJson(comparison)["nvme"][0]["refused"] == refused);
    CHECK(ToJson(comparison)["verdicts"][0]["verdict"] == (refused ? "refused" : "met"));
  }
}

TEST_CASE("beside the bare stream a figure is the median of the rounds' ratios") {
  Comparison comparison = Of({DisciplineOf(Operation::kGet, 4 * kMiB, 1, {})});
  comparison.disciplines[0].results = {{kMemcpy, SeriesOf({9, 9, 9})},
                                       {kKvkeepGrpc, SeriesOf({1, 2, 8})},
                                       {kBareStream, SeriesOf({2, 2, 2})}};
  const bench::Json json = ToJson(comparison)["disciplines"][0];
  CHECK(json["of_stream"][kKvkeepGrpc]["median"] == Approx(1.0));
  CHECK(json["of_stream"][kKvkeepGrpc]["min"] == Approx(0.5));
  CHECK(json["of_stream"][kKvkeepGrpc]["max"] == Approx(4.0));
  CHECK_THAT(ToText(comparison), Catch::Contains("kvkeep gRPC / gRPC stream"));
}

}  // namespace kvkeep::compare
