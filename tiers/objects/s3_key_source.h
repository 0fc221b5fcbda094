// S3KeySource: where the keys of a bucket come from: a file, the environment, a service that is
// asked by HTTP (service_key_source.h), a program (process_key_source.h). Sources are asked by
// S3Credentials alone, one question at a time.
//
// Errors name the file, the line, the variable or the field and the fault, never the contents: they
// are logged.
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
  // Returns whether there are other keys than the last Fetch gave. Polled, cheap, from one thread.
  virtual bool Changed() { return false; }
  // Soon ends the question under way, and every later one. Thread-safe.
  virtual void Stop() {}
};

// Returns the value of a variable, or null if it is not set, as std::getenv does.
using KeyEnvironment = std::function<const char*(const char*)>;

// Fails on text that a signature or a header could not carry. `token` may be empty.
absl::StatusOr<S3Keys> MakeS3Keys(absl::string_view id, absl::string_view secret,
                                  absl::string_view token);

// Parses two lines, access key id and secret access key, and an optional third, the session token.
// Fails on further lines, and on text that a signature or a header could not carry.
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

// Asks a source on a thread of its own, as its file may lie where reading hangs, and its service or
// program may be slow: the caller must not stop.
class BackgroundKeySource final : public S3KeySource {
 public:
  explicit BackgroundKeySource(std::unique_ptr<S3KeySource> below);
  // Stops the source, and waits for its question under way.
  ~BackgroundKeySource() override;
  void Fetch(Done done) override;
  // Returns the result of the look that an earlier call began.
  bool Changed() override;
  void Stop() override { below_->Stop(); }

 private:
  const std::unique_ptr<S3KeySource> below_;
  std::atomic<bool> fetched_{false}, looking_{false}, changed_{false};
  ThreadPool thread_;  // last: what it does ends before the rest is gone
};

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if it is there, AWS_SESSION_TOKEN, as they were
// when this was made.
class EnvironmentKeySource final : public S3KeySource {
 public:
  explicit EnvironmentKeySource(const KeyEnvironment& environment);
  void Fetch(Done done) override;

 private:
  std::string id_, token_;
  SecretText secret_;
};

}  // namespace kvkeep
