// The verbs about chunks: ping, put, get, lookup, delete.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/time/time.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/kvkeep/cli.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

using client::GetStatus;
using client::PutStatus;

constexpr char kKeyHelp[] =
    "64 hexadecimal digits, or any other text, which is hashed to a key by SHA-256";

absl::StatusOr<std::vector<std::byte>> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  const auto size = static_cast<uint64_t>(file.tellg());
  if (size < kMinPayloadBytes || size > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has ", size, " bytes; a chunk has 1 to ", kMaxPayloadBytes));
  }
  std::vector<std::byte> bytes(size);
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    return absl::InternalError(absl::StrCat(path, ": cannot be read"));
  }
  return bytes;
}

int Ping(const Cli& cli) {
  auto client = cli.Connect();
  if (!client.ok()) return cli.Fail(client.status());
  const auto began = std::chrono::steady_clock::now();
  auto info = (*client)->GetServerInfo();
  if (!info.ok()) return cli.Fail(info.status());
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(
                      std::chrono::steady_clock::now() - began)
                      .count();
  const client::PathInfo path = (*client)->path();
  const std::string incarnation = absl::StrFormat("%016x", info->incarnation);
  return cli.Print(
      {{"version", info->version},
       {"state", info->state},
       {"incarnation", incarnation},
       {"round_trip_us", us},
       {"path", std::string(client::PathName(path.path))},
       {"path_why", path.why}},
      absl::StrCat("kvkeepd ", info->version, " at ", cli.endpoint, " is ", info->state, " (", us,
                   " us, incarnation ", incarnation, ")\npath: ", path.why, "\n"));
}

int Put(const Cli& cli, const std::string& name, const std::string& path, bool durable) {
  const ChunkKey key = ParseKey(name);
  auto bytes = ReadWhole(path);
  if (!bytes.ok()) return cli.Fail(bytes.status());
  auto client = cli.Connect();
  if (!client.ok()) return cli.Fail(client.status());
  auto ns = cli.OpenNamespace(**client);
  if (!ns.ok()) return cli.Fail(ns.status());
  auto put =
      (*client)->Put(*ns, {{.key = key, .runs = {*bytes}}}, {.durable = durable, .checksum = true});
  if (!put.ok()) return cli.Fail(put.status());
  const client::PutOutcome& outcome = put->chunks[0];
  const std::string status(client::PutStatusName(outcome.status));
  const bool good = outcome.status == PutStatus::kStored || outcome.status == PutStatus::kPresent;
  if (!good) cli.terminal.err << "kvkeep: " << status << ": " << outcome.message << "\n";
  return cli.Print({{"key", key.ToHex()},
                    {"status", status},
                    {"bytes", bytes->size()},
                    {"message", outcome.message}},
                   absl::StrCat(status, " ", key.ToHex(), " ", bytes->size(), " bytes\n"),
                   good ? kOk : kFailed);
}

int Get(const Cli& cli, const std::string& name, const std::string& path,
        client::Deadline remote_wait) {
  const ChunkKey key = ParseKey(name);
  auto client = cli.Connect();
  if (!client.ok()) return cli.Fail(client.status());
  auto ns = cli.OpenNamespace(**client);
  if (!ns.ok()) return cli.Fail(ns.status());
  std::vector<std::byte> bytes;
  const auto allocate = [&](size_t, uint64_t size) {
    bytes.resize(size);
    return std::span<std::byte>(bytes);
  };
  auto got = (*client)->Get(*ns, {key}, {.remote_wait = remote_wait, .allocate = allocate});
  if (!got.ok()) return cli.Fail(got.status());
  const GetStatus status = got->chunks[0].status;
  if (status == GetStatus::kMiss) return cli.Fail(absl::NotFoundError(key.ToHex() + ": not there"));
  if (status != GetStatus::kHit) {
    return cli.Fail(absl::InternalError(
        absl::StrCat(key.ToHex(), ": ", std::string(client::GetStatusName(status)))));
  }
  if (path == "-") {
    cli.terminal.out.write(reinterpret_cast<const char*>(bytes.data()),
                           static_cast<std::streamsize>(bytes.size()));
    return kOk;
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) return cli.Fail(absl::InternalError(absl::StrCat(path, ": cannot be written")));
  return cli.Print(
      {{"key", key.ToHex()}, {"status", "hit"}, {"bytes", bytes.size()}, {"file", path}},
      absl::StrCat("hit ", key.ToHex(), " ", bytes.size(), " bytes to ", path, "\n"));
}

std::vector<ChunkKey> ParseKeys(const std::vector<std::string>& names) {
  std::vector<ChunkKey> keys;
  for (const std::string& name : names) keys.push_back(ParseKey(name));
  return keys;
}

// Returns which of the keys that `found` lacks are beyond the node, and brings them into G2. The
// search ends well before --timeout.
absl::StatusOr<std::vector<bool>> LookBeyond(const Cli& cli, client::Client& client,
                                             const client::Namespace& ns,
                                             const std::vector<ChunkKey>& keys,
                                             const client::LookupResult& found,
                                             client::Deadline remote_wait) {
  std::vector<bool> beyond(keys.size());
  std::vector<ChunkKey> missing;
  std::vector<size_t> at;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (found.present(i)) continue;
    missing.push_back(keys[i]);
    at.push_back(i);
  }
  if (missing.empty() || remote_wait.count() == 0) return beyond;
  const auto asked = client.Lookup(ns, missing,
                                   {.lease = client::LeaseMode::kAllPresent,
                                    .remote_wait = std::min(remote_wait, cli.timeout() / 2),
                                    .recompute_per_key = client::kNotComputable});
  if (!asked.ok()) return asked.status();
  for (size_t i = 0; i < missing.size(); ++i) {
    beyond[at[i]] = asked->present(i) || asked->coming(i);
  }
  return beyond;
}

int Lookup(const Cli& cli, const std::vector<std::string>& names, client::Deadline remote_wait) {
  const std::vector<ChunkKey> keys = ParseKeys(names);
  auto client = cli.Connect();
  if (!client.ok()) return cli.Fail(client.status());
  auto ns = cli.OpenNamespace(**client);
  if (!ns.ok()) return cli.Fail(ns.status());
  auto found = (*client)->Lookup(*ns, keys);
  if (!found.ok()) return cli.Fail(found.status());
  const auto beyond = LookBeyond(cli, **client, *ns, keys, *found, remote_wait);
  if (!beyond.ok()) return cli.Fail(beyond.status());
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"KEY", "G2", "G3", "G4"}};
  bool any = false;
  const auto yes = [](bool there) { return there ? "yes" : "-"; };
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool g2 = found->in_g2(i), g3 = found->in_g3(i), g4 = (*beyond)[i];
    list.push_back({{"key", keys[i].ToHex()}, {"g2", g2}, {"g3", g3}, {"g4", g4}});
    rows.push_back({keys[i].ToHex(), yes(g2), yes(g3), yes(g4)});
    any = any || g2 || g3 || g4;
  }
  std::string text = FormatTable(rows);
  if (found->promotion_us > 0) {
    absl::StrAppend(&text, "from NVMe to DRAM: about ",
                    absl::FormatDuration(absl::Microseconds(found->promotion_us)), "\n");
  }
  return cli.Print({{"keys", list},
                    {"leading_keys", found->leading_keys},
                    {"promotion_us", found->promotion_us}},
                   text, any ? kOk : kNotFound);
}

int Delete(const Cli& cli, const std::vector<std::string>& names) {
  const std::vector<ChunkKey> keys = ParseKeys(names);
  auto client = cli.Connect();
  if (!client.ok()) return cli.Fail(client.status());
  auto ns = cli.OpenNamespace(**client);
  if (!ns.ok()) return cli.Fail(ns.status());
  auto deleted = (*client)->Delete(*ns, keys);
  if (!deleted.ok()) return cli.Fail(deleted.status());
  return cli.Print({{"deleted_chunks", *deleted}}, absl::StrCat("deleted ", *deleted, " chunks\n"),
                   *deleted > 0 ? kOk : kNotFound);
}

void AddRemoteWait(CLI::App* verb, std::string* text, const char* help) {
  verb->add_option("--remote-wait", *text, help)->check(BadRemoteWait);
}

CLI::App* AddVerb(CLI::App& app, Cli& cli, const char* name, const char* help) {
  CLI::App* verb = app.add_subcommand(name, help);
  verb->add_option("--namespace", cli.namespace_name,
                   "model name of the namespace: one part, sizes vary");
  return verb;
}

}  // namespace

void AddChunkVerbs(CLI::App& app, Cli& cli) {
  app.add_subcommand("ping", "ask the daemon whether it serves")->callback([&cli] {
    cli.run = [&cli] { return Ping(cli); };
  });

  struct Arguments {
    std::string key, file, output, remote_wait = "1s";
    std::vector<std::string> keys;
    bool durable = false;
  };
  auto arguments = std::make_shared<Arguments>();  // kept by the callbacks

  CLI::App* put = AddVerb(app, cli, "put", "put a file as one chunk");
  put->add_option("KEY", arguments->key, kKeyHelp)->required();
  put->add_option("FILE", arguments->file, "1 byte to 256 MiB")->required();
  put->add_flag("--durable", arguments->durable, "answer once it is on stable storage");
  put->callback([&cli, arguments] {
    cli.run = [&cli, arguments] {
      return Put(cli, arguments->key, arguments->file, arguments->durable);
    };
  });

  CLI::App* get = AddVerb(app, cli, "get", "get a chunk into a file");
  AddTenant(get, cli);
  get->add_option("KEY", arguments->key, kKeyHelp)->required();
  get->add_option("-o,--output", arguments->output, "file to write; - is stdout")->required();
  AddRemoteWait(get, &arguments->remote_wait,
                "the longest search beyond the node (G4) for missing chunks, at most half of "
                "--timeout; 0: no search");
  get->callback([&cli, arguments] {
    cli.run = [&cli, arguments] {
      return Get(cli, arguments->key, arguments->output, *ParseRemoteWait(arguments->remote_wait));
    };
  });

  CLI::App* lookup = AddVerb(app, cli, "lookup", "show where chunks are");
  AddTenant(lookup, cli);
  lookup->add_option("KEY", arguments->keys, kKeyHelp)->required();
  AddRemoteWait(lookup, &arguments->remote_wait,
                "the longest search beyond the node (G4) for missing chunks, which are brought "
                "into DRAM, at most half of --timeout; 0: no search");
  lookup->callback([&cli, arguments] {
    cli.run = [&cli, arguments] {
      return Lookup(cli, arguments->keys, *ParseRemoteWait(arguments->remote_wait));
    };
  });

  CLI::App* remove = AddVerb(app, cli, "delete", "delete chunks from all tiers");
  remove->add_option("KEY", arguments->keys, kKeyHelp)->required();
  remove->callback(
      [&cli, arguments] { cli.run = [&cli, arguments] { return Delete(cli, arguments->keys); }; });
}

}  // namespace kvkeep::tools
