#include "tools/bench/fio.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <memory>

#include "tiers/base/status_macros.h"
#include "tools/bench/measured.h"

namespace kvkeep::bench {
namespace {

// GB/s that fio reads or writes; `what`: file, size, and for how long.
absl::StatusOr<double> RunFio(const std::string& direction, const std::string& what) {
  const std::string command =
      absl::StrCat("fio --name=kvkeep --bs=1M --rw=", direction, " ", what,
                   " --direct=1 --ioengine=io_uring --fixedbufs=1 --iodepth=16 "
                   "--output-format=json 2>/dev/null");
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) return absl::ErrnoToStatus(errno, "fio");
  std::string text;
  std::array<char, 4096> some;
  while (const size_t got = fread(some.data(), 1, some.size(), pipe.get())) {
    text.append(some.data(), got);
  }
  const size_t begin = text.find('{');  // notes may come first
  const Json json = begin == std::string::npos
                        ? Json(Json::value_t::discarded)
                        : Json::parse(text.substr(begin), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.contains("jobs")) {
    return absl::UnavailableError("fio gave no result; is it installed?");
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
  KVKEEP_RETURN_IF_ERROR(RunFio("write", fio->file_).status());
  return fio;
}

Fio::Fio(const FioOptions& options)
    : path_(absl::StrCat(options.directory, "/fio.data")),
      file_(absl::StrCat("--filename=", path_, " --size=", options.data_bytes)),
      fresh_(absl::StrCat("--fallocate=native --unlink=1 --filename=", options.directory,
                          "/fio.fresh --size=", options.fresh_bytes)),
      for_seconds_(
          absl::StrCat(" --time_based --runtime=", std::llround(options.seconds * 1000), "ms")) {}

Fio::~Fio() { (void)unlink(path_.c_str()); }

absl::StatusOr<double> Fio::Read() const { return RunFio("read", file_ + for_seconds_); }
absl::StatusOr<double> Fio::FillFirst() const { return RunFio("write", fresh_); }
absl::StatusOr<double> Fio::Overwrite() const { return RunFio("write", file_ + for_seconds_); }

}  // namespace kvkeep::bench
