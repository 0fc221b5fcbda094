#include "tools/bench/fio.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tools/bench/json_fields.h"
#include "tools/bench/server_program.h"

namespace kvkeep::bench {
namespace {

constexpr char kFile[] = "fio.data";

// GB/s that fio reads or writes; `what`: file, size, and for how long. It runs in the directory, so
// that it is told no path: it has a meaning of its own for some characters, ':' and ';' among them.
absl::StatusOr<double> RunFio(const std::string& direction, const std::string& directory,
                              const std::vector<std::string>& what) {
  std::vector<std::string> arguments = {"env",
                                        "--chdir=" + directory,
                                        "fio",
                                        "--name=kvkeep",
                                        "--bs=1M",
                                        "--rw=" + direction,
                                        "--direct=1",
                                        "--ioengine=io_uring",
                                        "--fixedbufs=1",
                                        "--iodepth=16",
                                        "--output-format=json"};
  arguments.insert(arguments.end(), what.begin(), what.end());
  KVKEEP_ASSIGN_OR_RETURN(const ProgramOutput ran, RunProgram(arguments));
  const std::string& text = ran.text;
  const size_t begin = text.find('{'), end = text.rfind('}');  // notes may stand around it
  const Json json = begin == std::string::npos || end == std::string::npos
                        ? Json(Json::value_t::discarded)
                        : Json::parse(text.substr(begin, end + 1 - begin), nullptr,
                                      /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("jobs")) {
    return absl::UnavailableError("fio gave no result; is it installed, and the directory there?");
  }
  const double bytes_per_second = json["jobs"][0][direction]["bw_bytes"];
  if (bytes_per_second <= 0) {
    return absl::UnavailableError("fio moved nothing: can this directory do O_DIRECT?");
  }
  return bytes_per_second / 1e9;
}

}  // namespace

absl::Status FioOptions::Validate() const {
  if (directory.empty()) return absl::InvalidArgumentError("fio: say in which directory");
  if (data_bytes == 0) return absl::InvalidArgumentError("fio: a file of 0 bytes");
  if (seconds < 0.001) return absl::InvalidArgumentError("fio: at least a millisecond");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Fio>> Fio::Make(const FioOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<Fio> fio(new Fio(options));
  KVKEEP_RETURN_IF_ERROR(RunFio("write", fio->directory_, fio->file_).status());
  return fio;
}

Fio::Fio(const FioOptions& options)
    : directory_(options.directory),
      file_({absl::StrCat("--filename=", kFile), absl::StrCat("--size=", options.data_bytes)}),
      timed_file_(file_) {
  timed_file_.emplace_back("--time_based");
  timed_file_.push_back(absl::StrCat("--runtime=", std::llround(options.seconds * 1000), "ms"));
}

Fio::~Fio() { (void)unlink(absl::StrCat(directory_, "/", kFile).c_str()); }

absl::StatusOr<double> Fio::Read() const { return RunFio("read", directory_, timed_file_); }

}  // namespace kvkeep::bench
