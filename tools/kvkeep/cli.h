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
  bool live = false;      // out is one, on which a view may be drawn again and again
  bool color = false;     // and in colours: NO_COLOR is not set
  // The present size of `out`: people change it.
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
  std::string tenant;  // whose namespace; empty: our own
  std::string timeout_text = "5s";
  std::string path_text = "auto";
  client::SecurityOptions security;
  bool json = false;
  Terminal terminal;
  std::function<int()> run;  // set by the verb that was asked for

  client::Deadline timeout() const;
  client::PathChoice path() const;
  client::AdminClient Admin() const;
  // Connected, or UNAVAILABLE: a person wants to know now.
  absl::StatusOr<std::unique_ptr<client::Client>> Connect() const;
  // The namespace of put, get, lookup and delete: model --namespace, one part, sizes vary; of get
  // and lookup perhaps another tenant's.
  absl::StatusOr<client::Namespace> OpenNamespace(client::Client& client) const;
  // Says what went wrong and returns the exit code for it.
  int Fail(const absl::Status& status) const;
  int FailUsage(const std::string& message) const;
  // The same for a verb that works on files: an invalid argument came from the command line.
  int FailAtFiles(const absl::Status& status) const;
  // Asks whether to do what cannot be undone ("forget all chunks"); where nobody can be asked, says
  // that --yes is wanted. False: it is not to be done, which has been said: kUsage.
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

}  // namespace kvkeep::tools
