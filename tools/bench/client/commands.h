// Commands: what this program can be told, by name. A command is a JSON object on a line of
// standard input, with its name under "do"; its answer is one on a line of standard output,
// {"error": words} of one that failed. tools/measure/processes.py is the other side. One thread.
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

  // REQUIRES: no other of that name.
  void Add(const std::string& name, Command command);
  // Answers a command. If nobody added the command, or it lacks an argument, the answer says so.
  Json Answer(const std::string& line);
  // Until there are no more.
  void Serve(std::istream& commands, std::ostream& answers);

 private:
  std::map<std::string, Command> by_name_;
};

}  // namespace kvkeep::bench
