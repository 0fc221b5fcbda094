// S3KeySource: where the keys of a bucket come from: a file, the environment; later a service that
// is asked by HTTP. Sources are asked by S3Credentials alone, one question at a time.
//
// Errors name the file, the line or the variable and what is wrong with it, never what it holds.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "tiers/base/executor.h"
#include "tiers/base/private_file.h"
#include "tiers/objects/s3_keys.h"

namespace kvkeep {

class S3KeySource {
 public:
  using Done = absl::AnyInvocable<void(absl::StatusOr<S3Keys>) &&>;

  virtual ~S3KeySource() = default;
  // Answers once, later or inside the call, on any thread, within a time that the source bounds.
  virtual void Fetch(Done done) = 0;
  // There are other keys than those told of last. Polled, cheap, from one thread.
  virtual bool Changed() { return false; }
};

// Two lines, access key id and secret access key; a third is the session token. Others, and what a
// signature or a header could not carry, are an error.
absl::StatusOr<S3Keys> ParseS3Keys(absl::string_view text);

// A file that others cannot read (tiers/base/private_file.h), read again when it has changed.
class FileKeySource final : public S3KeySource {
 public:
  static constexpr size_t kMaxFileBytes = 8192;  // session tokens are long

  explicit FileKeySource(std::string path) : path_(std::move(path)), changes_({path_}) {}
  void Fetch(Done done) override;
  bool Changed() override { return changes_.Due(); }

 private:
  const std::string path_;
  FileChanges changes_;
};

// A source that is asked on a thread of its own, as its file may lie where reading hangs: who asks
// must not stop. The first question alone is asked inside the call, so that a start knows its keys.
class BackgroundKeySource final : public S3KeySource {
 public:
  explicit BackgroundKeySource(std::unique_ptr<S3KeySource> below);
  void Fetch(Done done) override;
  // As the look that was begun by an earlier call says.
  bool Changed() override;

 private:
  const std::unique_ptr<S3KeySource> below_;
  std::atomic<bool> fetched_{false}, looking_{false}, changed_{false};
  ThreadPool thread_;  // last: what it does ends before the rest is gone
};

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if it is there, AWS_SESSION_TOKEN, as they were
// when this was made.
class EnvironmentKeySource final : public S3KeySource {
 public:
  // Null for what is not set: std::getenv.
  using Environment = std::function<const char*(const char*)>;

  explicit EnvironmentKeySource(const Environment& environment);
  void Fetch(Done done) override;

 private:
  std::string id_, token_;
  SecretText secret_;
};

// The first that is there: the file when `file` is not empty, then the environment. NotFound says
// what was looked for.
absl::StatusOr<std::unique_ptr<S3KeySource>> MakeS3KeySource(
    const std::string& file, const EnvironmentKeySource::Environment& environment);

}  // namespace kvkeep
