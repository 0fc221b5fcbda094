// The section of the table about two drives instead of one. A machine that measures has one, so
// they are simulated, under the store alone: kvkeep-devices-bench (tests/bench/store), which is
// built beside the daemon. It measures; judged is here.
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tools/bench/server_program.h"
#include "tools/bench/table_lines.h"
#include "tools/bench/table_sections.h"

namespace kvkeep::bench {
namespace {

constexpr double kLeastOfTwo = 1.9;
constexpr size_t kMostPrinted = 1 << 20;

absl::StatusOr<Json> Measure(const std::vector<std::string>& arguments) {
  const UniqueFd printed(memfd_create("devices", MFD_CLOEXEC));
  if (!printed.valid()) return absl::ErrnoToStatus(errno, "memfd_create");
  KVKEEP_ASSIGN_OR_RETURN(const pid_t pid, StartProgram(arguments, printed.get()));
  int status = 0;
  waitpid(pid, &status, 0);
  std::string text(kMostPrinted, 0);
  const ssize_t got = pread(printed.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (status != 0 || json.is_discarded()) {
    return absl::UnavailableError(absl::StrCat(arguments[0], ": ", text));
  }
  return json;
}

}  // namespace

absl::Status RunDevices(TableRun* run) {
  const std::filesystem::path program =
      std::filesystem::path(run->options.daemon_binary).parent_path() / "kvkeep-devices-bench";
  if (!std::filesystem::exists(program)) {
    run->report.lines.push_back(
        MissingLine("two simulated drives against one", "build kvkeep-devices-bench, too"));
    return absl::OkStatus();
  }
  const TableScale& scale = run->scale;
  run->Say(absl::StrCat("devices: ", scale.rounds, " rounds"));
  KVKEEP_ASSIGN_OR_RETURN(
      const Json json,
      Measure({program.string(), "--json", "--mib", absl::StrCat(scale.device_bytes / kMiB),
               "--rounds", absl::StrCat(scale.rounds), "--seconds", absl::StrCat(scale.seconds)}));
  const std::string of = absl::StrFormat("two simulated drives of %g MB/s and %d us against one: ",
                                         json.at("bytes_per_second").get<double>() / 1e6,
                                         json.at("latency_us").get<int>());
  std::vector<Line>& lines = run->report.lines;
  lines.push_back(RatioLine(of + "reads", "GB/s", json.at("read_two").get<std::vector<double>>(),
                            json.at("read_one").get<std::vector<double>>(),
                            {Bound::kAtLeast, kLeastOfTwo}));
  lines.push_back(RatioLine(of + "write-back", "GB/s", {json.at("written_two").get<double>()},
                            {json.at("written_one").get<double>()}));
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
