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

int Get(const Cli& cli, const std::string& name, const std::string& path) {
  const ChunkKey key = ParseKey(name);
  auto client = cli.Connect();
  if (!client.ok()) return cli.Fail(client.status());
  auto ns = cli.OpenNamespace(**client);
  if (!ns.ok()) return cli.Fail(ns.status());
  std::vector<std::byte> bytes;
  auto got = (*client)->Get(*ns, {key}, {.allocate = [&](size_t, uint64_t size) {
    bytes.resize(size);
    return std::span<std::byte>(bytes);
  }});
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

int Lookup(const Cli& cli, const std::vector<std::string>& names) {
  const std::vector<ChunkKey> keys = ParseKeys(names);
  auto client = cli.Connect();
  if (!client.ok()) return cli.Fail(client.status());
  auto ns = cli.OpenNamespace(**client);
  if (!ns.ok()) return cli.Fail(ns.status());
  auto found = (*client)->Lookup(*ns, keys);
  if (!found.ok()) return cli.Fail(found.status());
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"KEY", "G2", "G3"}};
  bool any = false;
  for (size_t i = 0; i < keys.size(); ++i) {
    list.push_back({{"key", keys[i].ToHex()}, {"g2", found->in_g2(i)}, {"g3", found->in_g3(i)}});
    rows.push_back({keys[i].ToHex(), found->in_g2(i) ? "yes" : "-", found->in_g3(i) ? "yes" : "-"});
    any = any || found->present(i);
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
    std::string key, file, output;
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
  get->callback([&cli, arguments] {
    cli.run = [&cli, arguments] { return Get(cli, arguments->key, arguments->output); };
  });

  CLI::App* lookup = AddVerb(app, cli, "lookup", "tell where chunks are");
  AddTenant(lookup, cli);
  lookup->add_option("KEY", arguments->keys, kKeyHelp)->required();
  lookup->callback(
      [&cli, arguments] { cli.run = [&cli, arguments] { return Lookup(cli, arguments->keys); }; });

  CLI::App* remove = AddVerb(app, cli, "delete", "delete chunks from all tiers");
  remove->add_option("KEY", arguments->keys, kKeyHelp)->required();
  remove->callback(
      [&cli, arguments] { cli.run = [&cli, arguments] { return Delete(cli, arguments->keys); }; });
}

}  // namespace kvkeep::tools
