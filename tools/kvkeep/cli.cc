#include "tools/kvkeep/cli.h"

#include <absl/strings/str_cat.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {

client::Deadline Cli::timeout() const {
  const auto parsed = ParseDuration(timeout_text);
  KVKEEP_CHECK(parsed.ok());  // checked when the option was read
  return *parsed;
}

client::PathChoice Cli::path() const {
  if (path_text == "grpc") return client::PathChoice::kGrpc;
  if (path_text == "local") return client::PathChoice::kLocal;
  return client::PathChoice::kAuto;
}

client::AdminClient Cli::Admin() const { return {admin_endpoint, timeout(), security}; }

absl::StatusOr<std::unique_ptr<client::Client>> Cli::Connect() const {
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<client::Client> connected,
                          client::Client::Connect({.endpoint = endpoint,
                                                   .client_name = "kvkeep CLI",
                                                   .default_deadline = timeout(),
                                                   .path = path(),
                                                   .security = security}));
  if (!connected->connected()) {
    // Any call's answer has the reason.
    const absl::Status reason = connected->GetServerInfo().status();
    return reason.ok() ? absl::UnavailableError(absl::StrCat("no session with ", endpoint))
                       : reason;
  }
  return connected;
}

absl::StatusOr<client::Namespace> Cli::OpenNamespace(client::Client& client) const {
  return client.OpenNamespace(
      {.model = namespace_name, .tokens_per_chunk = 1, .parts = 1, .tenant = tenant});
}

int Cli::Fail(const absl::Status& status) const {
  terminal.err << "kvkeep: " << std::string(status.message()) << "\n";
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kUnavailable;
    case absl::StatusCode::kNotFound:
      return kNotFound;
    default:
      return kFailed;
  }
}

int Cli::FailUsage(const std::string& message) const {
  terminal.err << "kvkeep: " << message << "\n";
  return kUsage;
}

int Cli::FailAtFiles(const absl::Status& status) const {
  if (absl::IsInvalidArgument(status)) return FailUsage(std::string(status.message()));
  return Fail(status);
}

bool Cli::Agreed(const std::string& what) const {
  if (!terminal.can_ask) {
    terminal.err << "kvkeep: this would " << what << ": say --yes\n";
    return false;
  }
  terminal.err << "This will " << what << ". Go on? [y/N] ";
  terminal.err.flush();
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "yes") return true;
  terminal.err << "kvkeep: nothing was done\n";
  return false;
}

int Cli::Print(const Json& value, const std::string& text, int code) const {
  if (json) {
    terminal.out << value.dump(2) << "\n";
  } else {
    terminal.out << text;
  }
  terminal.out.flush();
  return code;
}

void AddTenant(CLI::App* verb, Cli& cli) {
  verb->add_option("--tenant", cli.tenant,
                   "owner of the namespace, which lets this tenant read; 'default' is the tenant "
                   "without a name. By default the tenant of the socket or certificate");
}

namespace {

// The options have etcdctl's names.
void AddSecurityOptions(CLI::App& app, client::SecurityOptions* security) {
  app.add_option("--cacert", security->ca_file,
                 "PEM file of the CA of the daemon's certificate, over TCP; turns TLS on")
      ->envname("KVKEEP_CACERT");
  app.add_option("--cert", security->cert_file,
                 "PEM file of the client's certificate, for mutual TLS")
      ->envname("KVKEEP_CERT");
  app.add_option("--key", security->key_file, "PEM file of the certificate's key")
      ->envname("KVKEEP_KEY");
  app.add_option("--server-name", security->server_name,
                 "expected name in the daemon's certificate, instead of the endpoint's host")
      ->envname("KVKEEP_SERVER_NAME");
  app.add_option("--token-file", security->token_file, "file with the token to present")
      ->envname("KVKEEP_TOKEN_FILE");
}

}  // namespace

int RunCli(const std::vector<std::string>& arguments, Terminal terminal) {
  Cli cli(terminal);
  cli.endpoint = DefaultSocket("KVKEEP_ENDPOINT", "kvkeep.sock");
  cli.admin_endpoint = DefaultAdminSocket();

  CLI::App app(
      "Talks to the kvkeep daemon of this node. Exit codes: 0 done, 1 failed, 2 wrong "
      "usage, 3 not found, 4 daemon unavailable.",
      "kvkeep");
  app.option_defaults()->always_capture_default();
  app.add_option("--endpoint", cli.endpoint,
                 "the daemon's socket: unix:///path or host:port (env KVKEEP_ENDPOINT)");
  app.add_option("--admin", cli.admin_endpoint,
                 "the daemon's admin socket, or host:port (env KVKEEP_ADMIN)");
  app.add_option("--timeout", cli.timeout_text, "how long to wait for an answer: 500ms, 5s, 2m")
      ->check([](const std::string& text) {
        return std::string(ParseDuration(text).status().message());
      });
  app.add_option(
         "--path", cli.path_text,
         "path of bytes: grpc, local (shared memory), or auto: local if the daemon offers it")
      ->check(CLI::IsMember({"auto", "grpc", "local"}));
  AddSecurityOptions(app, &cli.security);
  app.add_flag("--json", cli.json, "print JSON with stable keys instead of tables");
  app.require_subcommand(1);
  app.fallthrough();  // global options may follow the verb
  AddChunkVerbs(app, cli);
  AddAdminVerbs(app, cli);
  AddInspectVerbs(app, cli);
  AddWatchVerbs(app, cli);
  AddEventsVerb(app, cli);
  AddWaitVerb(app, cli);
  AddConfigVerbs(app, cli);
  AddArenaVerbs(app, cli);
  AddFsckVerb(app, cli);
  AddG4Verbs(app, cli);
  AddKeysVerbs(app, cli);
  AddTraceVerbs(app, cli);
  AddPlanVerb(app, cli);
  AddSelfVerbs(app, cli);
  AddSetupVerbs(app, cli);

  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error, terminal.out, terminal.err);
    return code == 0 ? kOk : kUsage;  // 0: help was asked for
  }
  KVKEEP_CHECK(cli.run != nullptr);
  return cli.run();
}

}  // namespace kvkeep::tools
