#include "tools/bench/client/commands.h"

#include <catch2/catch.hpp>
#include <sstream>

namespace kvkeep::bench {

TEST_CASE("a command has an answer on a line of its own, and a failure is one too") {
  Commands commands;
  commands.Add("halve", [](const Json& arguments) -> absl::StatusOr<Json> {
    const int number = arguments.at("number");
    if (number % 2 != 0) return absl::InvalidArgumentError("\xff is not even");
    return Json{{"half", number / 2}};
  });
  std::istringstream asked(
      "{\"do\": \"halve\", \"number\": 8}\n{\"do\": \"halve\", \"number\": 7}\n"
      "{\"do\": \"double\"}\n{\"do\": \"halve\"}\nno JSON\n");
  std::ostringstream said;
  commands.Serve(asked, said);
  std::istringstream answers(said.str());
  std::vector<Json> all;
  for (std::string line; std::getline(answers, line);) all.push_back(Json::parse(line));
  REQUIRE(all.size() == 5);
  CHECK(all[0] == Json{{"half", 4}});
  CHECK(all[1] == Json{{"error", "\xef\xbf\xbd is not even"}});
  CHECK(all[2] == Json{{"error", "no command double"}});
  CHECK(all[3].contains("error"));
  CHECK(all[4].contains("error"));
}

}  // namespace kvkeep::bench
