#include "tools/bench/client/commands.h"

#include <absl/strings/str_cat.h>

#include <exception>
#include <istream>
#include <ostream>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::bench {
namespace {

Json Error(const std::string& words) { return {{"error", words}}; }

}  // namespace

void Commands::Add(const std::string& name, Command command) {
  KVKEEP_CHECK(by_name_.emplace(name, std::move(command)).second);
}

Json Commands::Answer(const std::string& line) {
  try {
    const Json arguments = Json::parse(line);
    const std::string name = arguments.at("do");
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return Error(absl::StrCat("no command ", name));
    absl::StatusOr<Json> answer = found->second(arguments);
    if (answer.ok()) return *std::move(answer);
    return Error(std::string(answer.status().message()));
  } catch (const std::exception& wrong) {  // JSON that is none, arguments that lack, no memory
    return Error(wrong.what());
  }
}

void Commands::Serve(std::istream& commands, std::ostream& answers) {
  for (std::string line; std::getline(commands, line);) {
    // A status' message may hold anything: bad UTF-8 must not end the process.
    answers << Answer(line).dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
}

}  // namespace kvkeep::bench
