// Commands: the commands of this program, by name. A command is a JSON object on a line of standard
// input, with its name under "do". The answer is an object on a line of standard output, {"error":
// words} if the command failed. tools/measure/processes.py is the other side. One thread.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

#include <iosfwd>
#include <map>
#include <string>

#include "tools/bench/client/json_fields.h"

namespace kvkeep::bench {

class Commands {
 public:
  using Command = absl::AnyInvocable<absl::StatusOr<Json>(const Json& arguments)>;

  // REQUIRES: no other command has that name.
  void Add(const std::string& name, Command command);
  // Answers a command. The answer is an error if the command is unknown or lacks an argument.
  Json Answer(const std::string& line);
  // Answers commands until the end of `commands`.
  void Serve(std::istream& commands, std::ostream& answers);

 private:
  std::map<std::string, Command> by_name_;
};

}  // namespace kvkeep::bench
