// S3KeySource: where the keys of a bucket come from: a file, the environment, a service that is
// asked by HTTP (service_key_source.h), a program (process_key_source.h). Sources are asked by
// S3Credentials alone, one question at a time.
//
// Errors name the file, the line, the variable or the field and what is wrong with it, never what
// it holds: they are logged.
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
  // What is asked is answered soon, and what will be asked from here on. Thread-safe.
  virtual void Stop() {}
};

// What is not set is null: std::getenv.
using KeyEnvironment = std::function<const char*(const char*)>;

// What a signature or a header could not carry is an error. `token` may be empty.
absl::StatusOr<S3Keys> MakeS3Keys(absl::string_view id, absl::string_view secret,
                                  absl::string_view token);

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

// A source that is asked on a thread of its own, as its file may lie where reading hangs, and its
// service or program may be slow: who asks must not stop.
class BackgroundKeySource final : public S3KeySource {
 public:
  explicit BackgroundKeySource(std::unique_ptr<S3KeySource> below);
  // Stops the source, and waits for what it does.
  ~BackgroundKeySource() override;
  void Fetch(Done done) override;
  // As the look that was begun by an earlier call says.
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
