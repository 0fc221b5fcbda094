// ProcessKeySource: keys that a program prints, as the "credential_process" of AWS's SDKs does.
//
// The program is run as it is, by no shell: with the daemon's environment and user, nothing on its
// standard input, its standard error dropped (such programs may say secrets there). Its time and
// its output are limited; a program over a limit is killed, with all of its process group.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tiers/base/unique_fd.h"
#include "tiers/objects/s3_key_source.h"

namespace kvkeep {

// Splits a command into words, as AWS documents it: words are separated by blanks, and a part in
// double quotes may hold blanks. There are no variables, no '~' and no escapes. InvalidArgument:
// the first is not an absolute path, a quote has no end, or the command is too long.
absl::StatusOr<std::vector<std::string>> SplitKeyCommand(absl::string_view command);

class ProcessKeySource final : public S3KeySource {
 public:
  static constexpr std::chrono::seconds kLongestRun{60};
  static constexpr size_t kMaxSaidBytes = 64 * 1024;

  // InvalidArgument says what is wrong with the command.
  static absl::StatusOr<std::unique_ptr<ProcessKeySource>> Make(
      absl::string_view command, std::chrono::milliseconds longest_run = kLongestRun);
  // Waits for the program.
  void Fetch(Done done) override;
  void Stop() override;

 private:
  ProcessKeySource(std::vector<std::string> words, std::chrono::milliseconds longest_run,
                   UniqueFd stop)
      : words_(std::move(words)), longest_run_(longest_run), stop_(std::move(stop)) {}
  // Returns the program's output, which is a secret.
  absl::StatusOr<std::string> Run() const;

  const std::vector<std::string> words_;
  const std::chrono::milliseconds longest_run_;
  const UniqueFd stop_;  // an eventfd, readable once this is stopped
};

}  // namespace kvkeep
