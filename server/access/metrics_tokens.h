// MetricsTokens: the bearer tokens that may read /metrics, from a file like listen.token_file
// (credentials.h) with the SHA-256 of each. Each request checks the file for changes.
//
// For one thread at a time.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <memory>
#include <string>

#include "server/access/credentials.h"
#include "server/observe/log.h"

namespace kvkeep {

class MetricsTokens {
 public:
  // InvalidArgument: the file cannot be read, or is none of tokens. `log` is borrowed.
  static absl::StatusOr<std::unique_ptr<MetricsTokens>> Load(const std::string& file,
                                                             const Log* log);

  bool Knows(absl::string_view token);

 private:
  MetricsTokens(std::unique_ptr<Credentials> tokens, const Log* log)
      : tokens_(std::move(tokens)), log_(log) {}

  const std::unique_ptr<Credentials> tokens_;
  const Log* const log_;
};

}  // namespace kvkeep
