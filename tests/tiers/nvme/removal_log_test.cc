// Images to be removed beyond the node, in a file that outlives the process.
#include "tiers/nvme/removal_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

ChunkId Id(uint32_t name) {
  ChunkId id{};
  id.ns.bytes.fill(3);
  id.key.bytes[31] = static_cast<uint8_t>(name);
  id.part = PartId(name);
  return id;
}

struct Log {
  explicit Log(const std::string& path) : log(FileRemovalLog::Open(path).value()) {}
  std::string Write(std::deque<RemovalLog::Note> notes, bool sync = false) {
    std::string told;
    log->Write(std::make_shared<std::deque<RemovalLog::Note>>(std::move(notes)), sync,
               [&](const absl::Status& status) {
                 told = status.ok() ? "ok" : std::string(status.message());
               });
    log->AwaitWritten();
    return told;
  }
  std::unique_ptr<FileRemovalLog> log;
};

}  // namespace

TEST_CASE("the next process is told what is to be removed, and not what was") {
  const ScratchDir dir;
  const std::string path = dir.path() + "/g4-removals";
  {
    Log log(path);
    CHECK(log.log->Left().empty());
    CHECK(log.Write({{Id(1)}, {Id(2)}, {Id(3)}}) == "ok");
    CHECK(log.Write({{Id(2), true}}, /*sync=*/true) == "ok");
    CHECK(log.Write({{Id(1), true}, {Id(1)}}) == "ok");
  }
  Log log(path);
  CHECK(log.log->Left() == std::vector<ChunkId>{Id(1), Id(3)});
  struct stat st;
  REQUIRE(stat(path.c_str(), &st) == 0);
  CHECK((st.st_mode & 077) == 0);
}

TEST_CASE("a note that was cut short, or is damaged, costs itself alone") {
  const ScratchDir dir;
  const std::string path = dir.path() + "/g4-removals";
  CHECK(Log(path).Write({{Id(1)}, {Id(2)}, {Id(3)}}) == "ok");
  SECTION("the last one is cut") {
    std::filesystem::resize_file(path, 4 * 64 - 10);
    CHECK(Log(path).log->Left() == std::vector<ChunkId>{Id(1), Id(2)});
  }
  SECTION("a byte of one is another") {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2 * 64 + 20);
    file.put('x');
    file.close();
    CHECK(Log(path).log->Left() == std::vector<ChunkId>{Id(1), Id(3)});
  }
  SECTION("what comes behind the cut is read again") {
    std::filesystem::resize_file(path, 4 * 64 - 10);
    CHECK(Log(path).Write({{Id(4)}}) == "ok");
    CHECK(Log(path).log->Left() == std::vector<ChunkId>{Id(1), Id(2), Id(4)});
  }
}

TEST_CASE("a file of another kind is refused and stays as it is") {
  const ScratchDir dir;
  const std::string path = dir.path() + "/g4-removals";
  std::ofstream(path) << std::string(100, 'x');
  CHECK(absl::IsFailedPrecondition(FileRemovalLog::Open(path).status()));
  CHECK(std::filesystem::file_size(path) == 100);
}

TEST_CASE("the file does not grow by what is over") {
  const ScratchDir dir;
  const std::string path = dir.path() + "/g4-removals";
  Log log(path);
  std::deque<RemovalLog::Note> notes;
  for (uint32_t i = 0; i < 1000; ++i) {
    notes.push_back({Id(i)});
    notes.push_back({Id(i), true});
  }
  for (int round = 0; round < 20; ++round) REQUIRE(log.Write(notes) == "ok");
  CHECK(std::filesystem::file_size(path) <= 64 * (2 * 4096));
  CHECK(log.Write({{Id(7)}}) == "ok");
  CHECK(Log(path).log->Left() == std::vector<ChunkId>{Id(7)});
}

}  // namespace kvkeep
