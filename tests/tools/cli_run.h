// Runs the CLI within the test and keeps its output.
#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fakes/fake_kv_service.h"
#include "tiers/base/check.h"
#include "tools/kvkeep/cli.h"

namespace kvkeep::tools {

struct CliResult {
  int code = 0;
  std::string out;
  std::string err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline CliResult Run(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = RunCli(arguments, {.out = out, .err = err});
  return {code, out.str(), err.str()};
}

inline CliResult Run(const fakes::FakeDaemon& daemon, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"--endpoint", daemon.endpoint(), "--admin", daemon.admin_endpoint()});
  return Run(arguments);
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = "/tmp/kvkeep-tools-XXXXXX";
    KVKEEP_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace kvkeep::tools
