// The CLI `kvkeep`: parses the arguments, runs one verb, returns the exit code.
//
// Data goes to `out` (a table for people, or JSON with stable keys), messages go to `err`. Exit
// codes are those of ExitCode. RunCli is main() without the process, for tests.
#pragma once

#include <absl/status/statusor.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "client/admin.h"
#include "client/client.h"
#include "tools/kvkeep/print.h"

namespace CLI {
class App;
}

namespace kvkeep::tools {

enum ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kNotFound = 3, kUnavailable = 4 };

struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool progress = false;  // err is a terminal
  bool can_ask = false;   // stdin is a terminal
  bool live = false;      // out is a terminal, on which a view may be redrawn
  bool color = false;     // out is a terminal, and NO_COLOR is not set
  // Returns the present size of `out`, which may change.
  std::function<ScreenSize()> size = [] { return ScreenSize{}; };
};

int RunCli(const std::vector<std::string>& arguments, Terminal terminal);

// ---- for the verbs
// -------------------------------------------------------------------------------

// The global options and what all verbs need. Outlives the run of a verb.
class Cli {
 public:
  explicit Cli(Terminal t) : terminal(t) {}

  std::string endpoint;
  std::string admin_endpoint;
  std::string namespace_name = "cli";
  std::string tenant;  // owner of the namespace; empty: this client's tenant
  std::string timeout_text = "5s";
  std::string path_text = "auto";
  client::SecurityOptions security;
  bool json = false;
  Terminal terminal;
  std::function<int()> run;  // set by the given verb

  client::Deadline timeout() const;
  client::PathChoice path() const;
  client::AdminClient Admin() const;
  // Returns a connected client, or UNAVAILABLE at once: a person waits for the answer.
  absl::StatusOr<std::unique_ptr<client::Client>> Connect() const;
  // Opens the namespace of put, get, lookup and delete: model --namespace, one part, any sizes; for
  // get and lookup it may be another tenant's.
  absl::StatusOr<client::Namespace> OpenNamespace(client::Client& client) const;
  // Prints the error and returns its exit code.
  int Fail(const absl::Status& status) const;
  int FailUsage(const std::string& message) const;
  // As Fail, for a verb that works on files: an invalid argument came from the command line.
  int FailAtFiles(const absl::Status& status) const;
  // Asks whether to do `what` ("forget all chunks"), which cannot be undone; without a terminal,
  // prints that --yes is required. Returns false if it must not be done: the message is printed,
  // and the exit code is kUsage.
  bool Agreed(const std::string& what) const;
  // Prints `value` with --json, else `text`; returns `code`.
  int Print(const Json& value, const std::string& text, int code = kOk) const;
};

// Option --tenant, for a verb that only reads.
void AddTenant(CLI::App* verb, Cli& cli);

void AddChunkVerbs(CLI::App& app, Cli& cli);   // ping, put, get, lookup, delete
void AddAdminVerbs(CLI::App& app, Cli& cli);   // status, clear, drain, version
void AddConfigVerbs(CLI::App& app, Cli& cli);  // config show, config reload
void AddArenaVerbs(CLI::App& app, Cli& cli);   // arena status, arena drop
void AddFsckVerb(CLI::App& app, Cli& cli);     // fsck
void AddG4Verbs(CLI::App& app, Cli& cli);      // g4 check, and:
void AddG4SweepVerb(CLI::App& g4, Cli& cli);   // g4 sweep
void AddKeysVerbs(CLI::App& app, Cli& cli);    // keys list, keys drop
void AddTraceVerbs(CLI::App& app, Cli& cli);   // replay, simulate
void AddPlanVerb(CLI::App& app, Cli& cli);     // plan
// sessions, leases, namespaces, quota, evict, verify
void AddInspectVerbs(CLI::App& app, Cli& cli);
void AddWatchVerbs(CLI::App& app, Cli& cli);  // top, stat
void AddEventsVerb(CLI::App& app, Cli& cli);  // watch
void AddWaitVerb(CLI::App& app, Cli& cli);    // wait
void AddSelfVerbs(CLI::App& app, Cli& cli);   // doctor, completion, man
void AddSetupVerbs(CLI::App& app, Cli& cli);  // init, up, down

}  // namespace kvkeep::tools
