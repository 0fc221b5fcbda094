// The kept figures are of a run of today's tool: they have the keys that it writes, all and no
// others. Red: keep a new run (tools/compare/README.md). peers.json is of an older one, not held.
#include <absl/algorithm/container.h>
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/tools/compare/made_up.h"
#include "tools/compare/report.h"

namespace kvkeep::compare {
namespace {

// "a.b" and "a[].b"; who took part is "*", and so is each pair of them.
void AddKeys(const bench::Json& value, const std::string& path, std::set<std::string>* keys) {
  if (value.is_array()) {
    for (const bench::Json& entry : value) AddKeys(entry, path + "[]", keys);
  }
  if (!value.is_object()) return;
  const bool of_names = absl::EndsWith(path, "results") || absl::EndsWith(path, "times_as_fast") ||
                        absl::EndsWith(path, "of_stream");
  for (const auto& [key, below] : value.items()) {
    const std::string name = path.empty() ? key : path + "." + (of_names ? "*" : key);
    keys->insert(name);
    AddKeys(below, name, keys);
  }
}

std::set<std::string> KeysOf(const bench::Json& json) {
  std::set<std::string> keys;
  AddKeys(json, "", &keys);
  return keys;
}

// What the tool writes of a run without peers.
std::set<std::string> KeysWritten() {
  Comparison comparison;
  comparison.about = About({});
  comparison.names = {kMemcpy, kKvkeepLocal, kKvkeepStaging, kKvkeepGrpc, kBareStream};
  std::map<std::string, double> rates;
  for (const std::string& name : comparison.names) rates[name] = 1;
  comparison.disciplines = {DisciplineOf(Operation::kGet, 4 * kMiB, 1, rates)};
  comparison.nvme = {NvmeOf(4 * kMiB, 1, 1)};
  return KeysOf(ToJson(comparison));
}

}  // namespace

TEST_CASE("the kept comparison has what a run of the tool writes") {
  std::ifstream file(KEPT_COMPARISON);
  const bench::Json json = bench::Json::parse(file, nullptr, /*allow_exceptions=*/false);
  REQUIRE(json.is_object());
  const std::set<std::string> kept = KeysOf(json), written = KeysWritten();
  std::vector<std::string> absent, unknown;
  absl::c_set_difference(written, kept, std::back_inserter(absent));
  absl::c_set_difference(kept, written, std::back_inserter(unknown));
  CHECK(absent == std::vector<std::string>());
  CHECK(unknown == std::vector<std::string>());
  // And what an ordinary run is of.
  std::set<std::string> operations;
  for (const bench::Json& discipline : json["disciplines"]) {
    operations.insert(discipline["operation"]);
  }
  CHECK(operations == std::set<std::string>{"first put", "get", "lookup", "lookup+get", "put"});
  CHECK(json["about"]["rounds"] >= 9);
}

}  // namespace kvkeep::compare
