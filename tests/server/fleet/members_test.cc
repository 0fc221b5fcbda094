#include "server/fleet/members.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/fakes/scratch_dir.h"

namespace kvkeep {
namespace {

using Catch::Matchers::Contains;

std::string WhyNot(const Members::Options& options) {
  return std::string(Members::Load(options).status().message());
}

// Writes beside the file first, as people and config maps do.
void Write(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  REQUIRE(chmod((path + ".new").c_str(), 0644) == 0);
  REQUIRE(rename((path + ".new").c_str(), path.c_str()) == 0);
}

TEST_CASE("a member is a name and an address, of any case and family") {
  CHECK(ParseMember("B.example=10.0.0.2:9400").value() == Member{"b.example", "10.0.0.2:9400"});
  CHECK(ParseMember("b=[::1]:1").value() == Member{"b", "[::1]:1"});
  CHECK(ParseMember("gpu_1=h:1").ok());
  for (const char* wrong :
       {"", "b", "b=", "=h:1", "b=h", "b=:1", "b=h:0", "b=h:65536", "b=h:x", "b c=h:1", "b/c=h:1",
        "b=::1:9400", "b=unix:/x:1", "b=dns:///h:1", "b=h h:1"}) {
    INFO(wrong);
    CHECK_THAT(std::string(ParseMember(wrong).status().message()), Contains("NAME=HOST:PORT"));
  }
  CHECK_FALSE(ParseMember(std::string(65, 'a') + "=h:1").ok());
}

TEST_CASE("this node is no member of its own, and members are in the order of their names") {
  const absl::StatusOr<std::shared_ptr<Members>> members =
      Members::Load({.node = "B.example", .peers = {"c=h:3", "b.example=h:2", "a=h:1"}});
  REQUIRE(members.ok());
  CHECK((*members)->all() == std::vector<Member>{{"a", "h:1"}, {"c", "h:3"}});
}

TEST_CASE("what is wrong with a list is told: a line, a name twice, too many") {
  const ScratchDir dir;
  Write(dir / "peers", "a=h:1\n# a comment\n\nb\n");
  CHECK_THAT(WhyNot({.node = "n", .file = dir / "peers"}), Contains("line 4: 'b'"));
  CHECK_THAT(WhyNot({.node = "n", .peers = {"a=h:1", "A=h:2"}}), Contains("two nodes are named a"));
  CHECK_THAT(WhyNot({.node = "n", .file = dir / "none"}), Contains("none"));
  std::string many;
  for (size_t i = 0; i <= kMostMembers; ++i) many += "n" + std::to_string(i) + "=h:1\n";
  Write(dir / "peers", many);
  CHECK_THAT(WhyNot({.node = "n", .file = dir / "peers"}), Contains("1025 nodes; at most 1024"));
}

TEST_CASE("a changed file is read again, and one that is wrong leaves the earlier members") {
  const ScratchDir dir;
  Write(dir / "peers", "a=h:1 # the first\n");
  const std::shared_ptr<Members> members =
      Members::Load({.node = "n", .file = dir / "peers"}).value();
  members->Look();
  CHECK_FALSE(members->TakeNews().has_value());
  const auto reloaded = [&] {
    for (int i = 0; i < 3; ++i) members->Look();  // a file counts as written once two are alike
    std::optional<absl::Status> news = members->TakeNews();
    CHECK_FALSE(members->TakeNews().has_value());
    return news;
  };
  Write(dir / "peers", "a=h:1\nb=h:2\n");
  CHECK(reloaded() == absl::OkStatus());
  CHECK(members->all().size() == 2);
  Write(dir / "peers", "a\n");
  CHECK(absl::IsInvalidArgument(reloaded().value()));
  CHECK(members->all().size() == 2);
}

}  // namespace
}  // namespace kvkeep
