// The same cases of puts by gRPC and by shared memory get the same answers.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <map>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::PathChoice;
using client::PutStatus;

constexpr size_t kLittleBytes = 64 * 1024;

std::string NameOf(PutStatus status) {
  static const std::map<PutStatus, std::string> names = {{PutStatus::kStored, "stored"},
                                                         {PutStatus::kPresent, "present"},
                                                         {PutStatus::kRejected, "rejected"},
                                                         {PutStatus::kUnfinished, "unfinished"}};
  return names.at(status);
}

// One answer a line: the case, how it ended, and why.
class Cases {
 public:
  Cases(const Site& site, PathChoice path) : site_(site), path_(path), engine_(Open({})) {}

  std::string Run() {
    Put("a new chunk", engine_, 1);
    Put("the same again", engine_, 1);
    Put("with its checksum", engine_, 2, {.checksum = true});
    Put("durable where there is no G3", engine_, 3, {.durable = true});
    Put("the same, which is there", engine_, 3, {.durable = true});
    Put("more than puts may reserve", engine_, 4, {}, 6 << 20);
    Put("metadata over its limit", engine_, 5, {}, kLittleBytes, std::string((16 << 10) + 1, 'm'));
    Engine sized = Open({.bytes_per_part = 4096});
    Put("of the namespace's size", sized, 6, {}, 4096);
    Put("of another size", sized, 7, {}, 4097);
    Put("of another part", engine_, 8, {}, kLittleBytes, "", 3);
    return told_;
  }

 private:
  Engine Open(client::NamespaceSpec spec) {
    spec.model = absl::StrCat("two listeners ", static_cast<int>(path_));
    spec.tokens_per_chunk = 256;
    return Engine(site_, {.spec = spec, .path = path_});
  }
  void Put(const std::string& what, Engine& engine, uint64_t number,
           const client::PutOptions& options = {}, size_t bytes = kLittleBytes,
           const std::string& metadata = "", uint32_t part = 0) {
    const std::vector<std::byte> payload = Payload({number, bytes});
    const auto put = engine.client().Put(
        engine.ns(),
        {{.key = Key(number), .part = part, .runs = {payload}, .metadata = metadata}}, options);
    absl::StrAppend(&told_, what, ": ");
    if (!put.ok()) {
      absl::StrAppend(&told_, put.status().ToString(), "\n");
      return;
    }
    const client::PutOutcome& outcome = put->chunks[0];
    absl::StrAppend(&told_, NameOf(outcome.status), " ", outcome.message, " ",
                    put->error.ToString(), "\n");
  }

  const Site& site_;
  const PathChoice path_;
  Engine engine_;
  std::string told_;
};

}  // namespace

TEST_CASE("a put is answered the same by gRPC and by shared memory") {
  Site site({.g2 = "32MiB", .devices = {}, .reserved_bytes = "12%", .local = true});
  site.Start();
  const std::string by_grpc = Cases(site, PathChoice::kGrpc).Run();
  const std::string by_memory = Cases(site, PathChoice::kLocal).Run();
  CHECK(by_grpc == by_memory);
}

}  // namespace kvkeep::e2e
