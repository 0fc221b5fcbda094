// The verbs for an operator's questions (sessions, leases, namespaces, quota) and for remedies
// (evict, verify).
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <thread>

#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/status_view.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

int ShowSessions(const Cli& cli, bool with_leases) {
  client::AdminClient admin = cli.Admin();
  auto status = admin.Status();
  if (!status.ok()) return cli.Fail(status.status());
  if (with_leases) {
    auto* sessions = status->mutable_sessions();
    for (int i = sessions->size() - 1; i >= 0; --i) {
      if (sessions->Get(i).leases() == 0) sessions->DeleteSubrange(i, 1);
    }
  }
  return cli.Print(
      {{"sessions", SessionsJson(*status)}, {"leased_bytes", status->g2().leased_bytes()}},
      SessionsTable(SessionsOf(*status)));
}

int Quota(const Cli& cli) {
  client::AdminClient admin = cli.Admin();
  auto status = admin.Status();
  if (!status.ok()) return cli.Fail(status.status());
  return cli.Print({{"tenants", TenantsJson(*status)}}, TenantsTable(*status));
}

int Namespaces(const Cli& cli) {
  client::AdminClient admin = cli.Admin();
  auto found = admin.ListNamespaces();
  if (!found.ok()) return cli.Fail(found.status());
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"NAMESPACE", "TENANT", "MODEL", "CHUNKS", "G2", "G3", "SESSIONS"}};
  for (const v1::NamespaceStatus& ns : found->namespaces()) {
    const std::string digest = absl::BytesToHexString(ns.digest());
    list.push_back({{"digest", digest},
                    {"tenant", ns.tenant()},
                    {"model", ns.model()},
                    {"sessions", ns.sessions()},
                    {"chunks", ns.chunks()},
                    {"g2_bytes", ns.g2_bytes()},
                    {"g3_bytes", ns.g3_bytes()}});
    rows.push_back({digest.empty() ? "others" : digest, ns.tenant().empty() ? "-" : ns.tenant(),
                    ns.model().empty() ? "-" : ns.model(), absl::StrCat(ns.chunks()),
                    FormatBytes(ns.g2_bytes()), FormatBytes(ns.g3_bytes()),
                    absl::StrCat(ns.sessions())});
  }
  return cli.Print({{"namespaces", list}}, FormatTable(rows));
}

struct Evicting {
  std::string bytes, tier = "g2", tenant;
  bool yes = false;
};

int Evict(const Cli& cli, const Evicting& asked) {
  v1::EvictRequest request;
  request.set_bytes(*ParseSize(asked.bytes));
  request.set_g3(asked.tier == "g3");
  request.set_tenant(asked.tenant);
  const std::string what = absl::StrCat("evict ", asked.bytes, " of ",
                                        asked.tenant.empty() ? "all tenants" : asked.tenant,
                                        " from ", asked.tier, " at ", cli.admin_endpoint);
  if (!asked.yes && !cli.Agreed(what)) return kUsage;
  client::AdminClient admin = cli.Admin();
  auto evicted = admin.Evict(request);
  if (!evicted.ok()) return cli.Fail(evicted.status());
  return cli.Print({{"chunks", evicted->chunks()}, {"bytes", evicted->bytes()}},
                   absl::StrCat("evicted ", evicted->chunks(), " chunks, ",
                                FormatBytes(evicted->bytes()), "\n"));
}

struct Verifying {
  std::string rate = "256MiB";
  bool stop = false, no_wait = false;
};

int ToldVerified(const Cli& cli, const v1::StatusResponse& before, const v1::StatusResponse& now) {
  const auto grown = [&](const char* name) {
    return CounterOf(now, name) - CounterOf(before, name);
  };
  const uint64_t damaged = grown("scrub_damaged_chunks");
  return cli.Print({{"done", !now.scrub().asked_for()},
                    {"checked_chunks", grown("scrubbed_chunks")},
                    {"checked_bytes", grown("scrubbed_bytes")},
                    {"damaged_chunks", damaged}},
                   absl::StrCat("checked ", grown("scrubbed_chunks"), " chunks, ",
                                FormatBytes(grown("scrubbed_bytes")), "; ", damaged,
                                " damaged, which are misses now\n"),
                   damaged == 0 ? kOk : kFailed);
}

int Verify(const Cli& cli, const Verifying& asked) {
  constexpr std::chrono::milliseconds kLookEvery{100};
  client::AdminClient admin = cli.Admin();
  auto before = admin.Status();
  if (!before.ok()) return cli.Fail(before.status());
  v1::VerifyRequest request;
  request.set_bytes_per_second(asked.stop ? 0 : *ParseSize(asked.rate));
  auto begun = admin.Verify(request);
  if (!begun.ok()) return cli.Fail(begun.status());
  auto now = admin.Status();
  while (now.ok() && now->scrub().asked_for() && !asked.no_wait) {
    if (now->incarnation() != before->incarnation()) {
      return cli.Fail(absl::UnavailableError("the daemon restarted: run this again"));
    }
    if (cli.terminal.progress) {
      cli.terminal.err << "\r"
                       << FormatShare(static_cast<double>(now->scrub().looked_at()),
                                      static_cast<double>(now->scrub().of()))
                       << " ";
      cli.terminal.err.flush();
    }
    std::this_thread::sleep_for(kLookEvery);  // for the daemon, which reads meanwhile
    now = admin.Status();
  }
  if (cli.terminal.progress) cli.terminal.err << "\r\033[K";
  if (!now.ok()) return cli.Fail(now.status());
  return ToldVerified(cli, *before, *now);
}

void AddEvict(CLI::App& app, Cli& cli) {
  auto asked = std::make_shared<Evicting>();
  CLI::App* evict = app.add_subcommand("evict",
                                       "evict the chunks that would go next, now; from g2, chunks "
                                       "that are not on NVMe yet are lost (admin socket)");
  evict->add_option("BYTES", asked->bytes, "at least this many: 512MiB, 10GiB")
      ->required()
      ->check(BadSizeAboveZero);
  evict->add_option("--tier", asked->tier, "where")->check(CLI::IsMember({"g2", "g3"}));
  evict->add_option("--tenant", asked->tenant,
                    "only chunks of this tenant; 'default' is the tenant without a name");
  evict->add_flag("--yes", asked->yes, "do not ask");
  evict->callback([&cli, asked] { cli.run = [&cli, asked] { return Evict(cli, *asked); }; });
}

void AddVerify(CLI::App& app, Cli& cli) {
  auto asked = std::make_shared<Verifying>();
  CLI::App* verify = app.add_subcommand(
      "verify",
      "read and check once, while the daemon serves, all chunks that only NVMe has; damaged chunks "
      "become misses. Exit code 1: some were damaged (admin socket)");
  verify->add_option("--bytes-per-second", asked->rate, "the most bytes a second")
      ->check(BadSizeAboveZero);
  CLI::Option* no_wait = verify->add_flag("--no-wait", asked->no_wait, "start it and do not wait");
  verify->add_flag("--stop", asked->stop, "stop the running one")->excludes(no_wait);
  verify->callback([&cli, asked] { cli.run = [&cli, asked] { return Verify(cli, *asked); }; });
}

}  // namespace

void AddInspectVerbs(CLI::App& app, Cli& cli) {
  app.add_subcommand("sessions", "show the connected clients, and what each holds (admin socket)")
      ->callback([&cli] { cli.run = [&cli] { return ShowSessions(cli, false); }; });
  app.add_subcommand("leases",
                     "show the sessions that hold chunks in place, and how much (admin socket)")
      ->callback([&cli] { cli.run = [&cli] { return ShowSessions(cli, true); }; });
  app.add_subcommand("namespaces",
                     "show the chunks of each namespace; looks at every chunk (admin socket)")
      ->callback([&cli] { cli.run = [&cli] { return Namespaces(cli); }; });
  app.add_subcommand("quota", "show what each tenant has, may have, and was refused (admin socket)")
      ->callback([&cli] { cli.run = [&cli] { return Quota(cli); }; });
  AddEvict(app, cli);
  AddVerify(app, cli);
}

}  // namespace kvkeep::tools
