// The CLI from its arguments to its exit code, against the fake daemon.
#include "tools/kvkeep/cli.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "tests/fakes/fake_kv_service.h"
#include "tests/tools/cli_run.h"

namespace kvkeep::tools {

TEST_CASE("wrong usage exits with 2 and a message, help with 0") {
  CHECK(Run({}).code == kUsage);
  CHECK(Run({"nonsense"}).code == kUsage);
  CHECK(Run({"ping", "--timeout", "soon"}).code == kUsage);
  CHECK(Run({"put", "key"}).code == kUsage);
  CHECK(Run({"get", "key"}).code == kUsage);  // no -o
  CHECK(Run({"clear"}).code == kUsage);       // no --yes, and no terminal to ask
  CHECK(Run({"replay", "t", "--chunk-bytes", "1KB"}).code == kUsage);
  CHECK(Run({"replay", "t", "--concurrency", "0"}).code == kUsage);
  CHECK(Run({"replay", "t", "--path", "shm"}).code == kUsage);
  CHECK(Run({"ping", "--path", "shm"}).code == kUsage);
  CHECK(Run({"simulate", "t"}).code == kUsage);  // no --chunks
  CHECK(Run({"watch", "--hash-seed", "xyz"}).code == kUsage);
  CHECK(Run({"watch", "--bytes-per-part", "1KB"}).code == kUsage);
  CHECK_FALSE(Run({"nonsense"}).err.empty());
  CHECK(Run({"--help"}).code == kOk);
  CHECK(Run({"version"}).out.find("kvkeep ") == 0);
  CHECK(Run({"--json", "version"}).json().contains("version"));
}

TEST_CASE("a daemon that is away is exit code 4 for every verb that needs it") {
  const std::string nowhere = "unix:///nonexistent/kvkeep.sock";
  const TemporaryDirectory dir;
  std::ofstream(dir.path("file")) << "x";
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{"ping"},
                                             {"status"},
                                             {"drain"},
                                             {"clear", "--yes"},
                                             {"lookup", "k"},
                                             {"delete", "k"},
                                             {"watch"},
                                             {"put", "k", dir.path("file")},
                                             {"get", "k", "-o", "-"}}) {
    std::vector<std::string> all = {"--endpoint", nowhere, "--admin", nowhere, "--timeout", "1s"};
    all.insert(all.end(), verb.begin(), verb.end());
    const CliResult result = Run(all);
    CAPTURE(verb[0]);
    CHECK(result.code == kUnavailable);
    CHECK(result.out.empty());
    CHECK_FALSE(result.err.empty());
  }
}

TEST_CASE("a file that was put can be looked up, got back and deleted") {
  fakes::FakeDaemon daemon;
  TemporaryDirectory dir;
  std::ofstream(dir.path("in")) << std::string(100'001, 'k') + "end";
  const CliResult put = Run(daemon, {"--json", "put", "my key", dir.path("in")});
  REQUIRE(put.code == kOk);
  CHECK(put.json()["status"] == "stored");
  CHECK(put.json()["bytes"] == 100'004);
  CHECK(Run(daemon, {"put", "my key", dir.path("in")}).out.find("present") == 0);
  const CliResult lookup = Run(daemon, {"lookup", "my key", "none", "--json"});
  CHECK(lookup.code == kOk);
  CHECK(lookup.json()["leading_keys"] == 1);
  CHECK(lookup.json()["promotion_us"] == 0);
  CHECK(lookup.json()["keys"][0]["g2"] == true);
  CHECK(lookup.json()["keys"][1]["g2"] == false);
  CHECK(lookup.json()["keys"][0]["key"] == put.json()["key"]);
  CHECK(Run(daemon, {"get", "my key", "-o", dir.path("out")}).code == kOk);
  std::ifstream out(dir.path("out"));
  CHECK(std::string(std::istreambuf_iterator<char>(out), {}) == std::string(100'001, 'k') + "end");
  CHECK(Run(daemon, {"get", "my key", "-o", "-"}).out.size() == 100'004);
  CHECK(Run(daemon, {"--namespace", "x", "get", "my key", "-o", "-"}).code == kUsage);
  CHECK(Run(daemon, {"get", "my key", "-o", "-", "--namespace", "other"}).code == kNotFound);
  CHECK(Run(daemon, {"delete", "my key", "--json"}).json()["deleted_chunks"] == 1);
  CHECK(Run(daemon, {"delete", "my key"}).code == kNotFound);
  CHECK(Run(daemon, {"lookup", "my key"}).code == kNotFound);
  CHECK(Run(daemon, {"get", "my key", "-o", dir.path("out")}).code == kNotFound);
}

TEST_CASE("get and lookup find what lies beyond the node, unless they are told to ask nobody") {
  fakes::FakeDaemon daemon;
  TemporaryDirectory dir;
  std::ofstream(dir.path("in")) << "bytes";
  REQUIRE(Run(daemon, {"put", "k", dir.path("in")}).code == kOk);
  daemon.kv.script.in_g4 = true;
  CHECK(Run(daemon, {"get", "k", "-o", "-"}).out == "bytes");
  CHECK(Run(daemon, {"get", "k", "-o", "-", "--remote-wait", "0"}).code == kNotFound);
  const CliResult found = Run(daemon, {"lookup", "none", "k", "--json"});
  CHECK(found.code == kOk);
  CHECK(found.json()["leading_keys"] == 0);
  const auto row = [&](size_t i, const char* tier) { return found.json()["keys"][i][tier]; };
  CHECK(row(0, "g4") == false);
  CHECK(row(1, "g4") == true);
  CHECK(row(1, "g2") == false);
  CHECK(row(1, "g3") == false);
  const CliResult here = Run(daemon, {"lookup", "k", "--remote-wait", "0", "--json"});
  CHECK(here.code == kNotFound);
  CHECK(here.json()["keys"][0]["g4"] == false);
  CHECK(Run(daemon, {"lookup", "k", "--remote-wait", "11s"}).code == kUsage);
  // A wait as long as the deadline does not use all of it.
  CHECK(Run(daemon, {"--timeout", "2s", "lookup", "k", "--remote-wait", "10s"}).code == kOk);
}

TEST_CASE("watch tells of chunks a line each, of beginnings, and ends when told to") {
  fakes::FakeDaemon daemon;
  daemon.kv.OnWatch([](auto*, auto* writer) {
    v1::WatchEvents message;
    message.set_epoch(0xab);
    message.set_gap(true);
    message.set_keys(std::string(32, 'k') + std::string(32, 'l'));
    for (const v1::ChunkChange change : {v1::CHUNK_CHANGE_G2_STORED, v1::CHUNK_CHANGE_G3_REMOVED}) {
      message.add_parts(3);
      message.add_changes(change);
    }
    message.set_snapshot_end(true);
    writer->Write(message);
    return grpc::Status::OK;
  });
  std::string k, l;
  for (int i = 0; i < 32; ++i) {
    k += "6b";
    l += "6c";
  }
  const CliResult text = Run(daemon, {"watch", "--snapshot", "--parts", "4"});
  REQUIRE(text.code == kOk);
  CHECK(text.out == "-- all that is there (first, incarnation 00000000000000ab)\nstored  G2 " + k +
                        " part 3\nremoved G3 " + l +
                        " part 3\n-- that was all there is; changes from now on\n");
  const CliResult lines = Run(daemon, {"watch", "--json", "--count", "1"});
  REQUIRE(lines.code == kOk);
  CHECK(lines.out == R"({"event":"begins","why":"first","epoch":"00000000000000ab"})"
                     "\n"
                     R"({"event":"stored","tier":"g2","key":")" +
                         k +
                         R"(","part":3})"
                         "\n");
  const CliResult refused = Run(daemon, {"watch", "--namespace", "refused"});
  CHECK(refused.code == kFailed);
  CHECK(refused.err == "kvkeep: model: refused by the fake\n");
  CHECK(Run(daemon, {"watch", "--path", "local"}).code == kFailed);
}

TEST_CASE("a put that is rejected, or a get that is corrupt, exits with 1 and says why") {
  fakes::FakeDaemon daemon;
  TemporaryDirectory dir;
  std::ofstream(dir.path("in")) << "bytes";
  daemon.kv.script.reject_puts = true;
  const CliResult put = Run(daemon, {"put", "k", dir.path("in")});
  CHECK(put.code == kFailed);
  CHECK(put.err.find("NO_SPACE") != std::string::npos);
  daemon.kv.script.reject_puts = false;
  REQUIRE(Run(daemon, {"put", "k", dir.path("in")}).code == kOk);
  daemon.kv.script.corrupt_gets = 1;
  const CliResult get = Run(daemon, {"get", "k", "-o", "-"});
  CHECK(get.code == kFailed);
  CHECK(get.out.empty());
  CHECK(get.err.find("corrupt") != std::string::npos);
  CHECK(Run(daemon, {"put", "k", dir.path("none")}).code != kOk);
  std::ofstream(dir.path("empty"));
  CHECK(Run(daemon, {"put", "k", dir.path("empty")}).code == kFailed);
}

TEST_CASE("status tells how G4 is, what it gave, and what to do when it is not well") {
  fakes::FakeDaemon daemon;
  CHECK_FALSE(Run(daemon, {"status", "--json"}).json().contains("g4"));
  CHECK_FALSE(absl::StrContains(Run(daemon, {"status"}).out, "G4"));
  daemon.admin.g4_state = v1::G4_STATE_WELL;
  CHECK(absl::StrContains(Run(daemon, {"status"}).out,
                          "\nG4: http://s3/bucket, well; 3 hits, 3.0 MiB; 5 written, 5.0 MiB\n"));
  daemon.admin.g4_takes_puts = false;
  CHECK(absl::StrContains(Run(daemon, {"status"}).out,
                          "http://s3/bucket, takes no writes; 3 hits, 3.0 MiB; 5 written, "
                          "5.0 MiB\n    NoSuchBucket: The bucket does not exist\n"
                          "    to do: create the bucket\n"));
  daemon.admin.g4_state = v1::G4_STATE_AWAY;
  CHECK(absl::StrContains(Run(daemon, {"status"}).out, ", away, next request in 42 s; 3 hits"));
  daemon.admin.g4_state = v1::G4_STATE_MISCONFIGURED;
  const CliResult refuses = Run(daemon, {"status"});
  CHECK(refuses.code == kOk);
  CHECK(absl::StrContains(refuses.out, ", misconfigured, next request in 42 s; 3 hits"));
  CHECK(absl::StrContains(refuses.out, "to do: create the bucket\n"));
  const auto json = Run(daemon, {"status", "--json"}).json()["g4"];
  CHECK(json["state"] == "misconfigured");
  CHECK(json["takes_puts"] == false);
  CHECK(json["error_code"] == "NoSuchBucket");
  CHECK(json["what_to_do"] == "create the bucket");
  CHECK(json["retry_in_ms"] == 42'000);
  CHECK(json["recalled_chunks"] == 3);
  CHECK(json["written_bytes"] == 5 << 20);
}

TEST_CASE("ping, status, clear and drain answer in tables and in JSON") {
  fakes::FakeDaemon daemon;
  CHECK(Run(daemon, {"ping"}).out.find("is serving") != std::string::npos);
  CHECK(Run(daemon, {"ping", "--json"}).json()["state"] == "serving");
  CHECK(Run(daemon, {"ping"}).out.find("path: grpc: no local socket at ") != std::string::npos);
  CHECK(Run(daemon, {"ping", "--json", "--path", "grpc"}).json()["path"] == "grpc");
  CHECK(Run(daemon, {"ping", "--path", "local", "--timeout", "1s"}).code == kUnavailable);
  const CliResult status = Run(daemon, {"status", "--json"});
  REQUIRE(status.code == kOk);
  for (const char* key : {"version", "incarnation", "state", "pid", "uptime_ms", "arena",
                          "io_engine", "g2", "g3", "devices", "sessions", "counters"}) {
    CAPTURE(key);
    CHECK(status.json().contains(key));
  }
  CHECK(status.json()["g2"]["capacity_bytes"] == 1 << 20);
  CHECK(status.json()["devices"][0]["state"] == "ok");
  const std::string text = Run(daemon, {"status"}).out;
  CHECK(text.find("TIER") != std::string::npos);
  CHECK(text.find("G2 has") == std::string::npos);  // all of it
  daemon.admin.g2_to_come = 3 << 20;
  CHECK(Run(daemon, {"status", "--json"}).json()["g2"]["to_come_bytes"] == 3 << 20);
  CHECK(Run(daemon, {"status"}).out.find("G2 has 1.0 MiB of 4.0 MiB") != std::string::npos);
  CHECK(Run(daemon, {"clear", "--yes", "--json"}).json()["cleared_chunks"] == 0);
  CHECK(Run(daemon, {"drain", "--json"}).json()["dirty_chunks_left"] == 0);
}

TEST_CASE("simulate answers per capacity, and refuses unknown policies and traces") {
  TemporaryDirectory dir;
  std::ofstream(dir.path("trace"))
      << R"({"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
         "\n"
      << R"({"timestamp": 5, "input_length": 1536, "output_length": 1, "hash_ids": [1, 2, 3]})"
         "\n";
  const CliResult result = Run({"simulate", dir.path("trace"), "--chunks", "1,10", "--json"});
  REQUIRE(result.code == kOk);
  REQUIRE(result.json().size() == 2);
  CHECK(result.json()[1]["chunks"] == 10);
  CHECK(result.json()[1]["hit_ratio"] == Approx(0.4));
  const auto full = [&dir](const std::string& tokens) {
    return Run({"simulate", dir.path("trace"), "--chunks", "10", "--json", "--full-chunks",
                "--tokens-per-chunk", tokens});
  };
  CHECK(full("512").json()[0]["hit_ratio"] == Approx(0.4));
  CHECK(full("1000").json()[0]["hit_ratio"] == Approx(0.2));  // one full chunk a request, of five
  CHECK(full("0").code == kUsage);
  CHECK(Run({"simulate", dir.path("trace"), "--chunks", "1", "--policy", "x"}).code == kUsage);
  const auto seconds = [&dir](const std::string& model, const std::string& option,
                              const std::string& value) {
    return Run({"simulate", dir.path("trace"), "--chunks", "10", "--json", "--objective", "seconds",
                "--model", model, option, value});
  };
  const Json small = seconds("llama-3.1-8b", "--gpu", "h100").json()[0];
  // By hand: two chunks of 512 tokens at 30,791 tokens a second, and their attention.
  CHECK(small["prefill_seconds_saved"] == Approx(0.033257 + 0.000556).epsilon(1e-3));
  CHECK(small["prefill_seconds"] > small["prefill_seconds_saved"]);
  CHECK(seconds("llama-3.1-405b", "--gpu", "h100").json()[0]["prefill_seconds_saved"] >
        small["prefill_seconds_saved"]);
  CHECK(seconds("llama-3.1-8b", "--g3-chunks", "5").json()[0]["prefill_seconds_saved"] ==
        Approx(small["prefill_seconds_saved"].get<double>()));
  CHECK(seconds("x", "--gpu", "h100").code == kUsage);
  CHECK(seconds("llama-3.1-8b", "--hints", "oracle:1").code == kUsage);
  CHECK_FALSE(Run({"simulate", dir.path("trace"), "--chunks", "10", "--json"})
                  .json()[0]
                  .contains("prefill_seconds"));
  const auto hinted = [&](const std::string& hints, const std::string& option,
                          const std::string& value) {
    return Run({"simulate", dir.path("trace"), "--chunks", "10", "--json", "--hints", hints, option,
                value});
  };
  const CliResult with_hints = hinted("oracle:1", "--hint-actions", "retain");
  CHECK(with_hints.code == kOk);
  CHECK(with_hints.json()[0]["hit_ratio"].is_number());
  CHECK(with_hints.json()[0]["demotions"] == 0);
  CHECK(hinted("oracle:1", "--g3-chunks", "5").code == kUsage);
  CHECK(hinted("oracle:1", "--hint-actions", "keep").code == kUsage);
  for (const char* bad : {"oracle", "oracle:", "oracle:2", "oracle:nan", "0.5"}) {
    CHECK(hinted(bad, "--hint-seed", "2").code == kUsage);
  }
  CHECK(Run({"simulate", dir.path("none"), "--chunks", "1"}).code == kFailed);
}

}  // namespace kvkeep::tools
