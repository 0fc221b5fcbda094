#include "tiers/objects/s3_key_source.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <vector>

namespace kvkeep {
namespace {

constexpr size_t kMaxIdBytes = 128, kMaxSecretBytes = 256, kMaxTokenBytes = 4096;

// Checks that the text can stand in a header and between the slashes of a scope.
absl::Status CheckKeyText(absl::string_view what, absl::string_view text, size_t max_bytes) {
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has ", text.size(),
                                                   " characters; the most are ", max_bytes));
  }
  const bool known = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " holds a blank or a character that is not ASCII"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<S3Keys> MakeS3Keys(absl::string_view id, absl::string_view secret,
                                  absl::string_view token) {
  absl::Status status = CheckKeyText("the access key id", id, kMaxIdBytes);
  if (status.ok() && absl::StrContains(id, "/")) {
    status = absl::InvalidArgumentError("the access key id holds a '/'");
  }
  status.Update(CheckKeyText("the secret access key", secret, kMaxSecretBytes));
  if (!token.empty()) status.Update(CheckKeyText("the session token", token, kMaxTokenBytes));
  if (!status.ok()) return status;
  return S3Keys{std::string(id), SecretText(secret), std::string(token), std::nullopt};
}

absl::StatusOr<S3Keys> ParseS3Keys(absl::string_view text) {
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(text), '\n');
  if (lines.size() < 2 || lines.size() > 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", lines.size(), " lines; it must be the access key id, the secret access key, and ",
        "if there is one the session token, a line each"));
  }
  return MakeS3Keys(absl::StripAsciiWhitespace(lines[0]), absl::StripAsciiWhitespace(lines[1]),
                    lines.size() == 3 ? absl::StripAsciiWhitespace(lines[2]) : "");
}

void FileKeySource::Fetch(Done done) {
  absl::StatusOr<std::string> text = ReadPrivateFile(path_, kMaxFileBytes, Secrecy::kSecret);
  if (!text.ok()) return std::move(done)(text.status());
  absl::StatusOr<S3Keys> keys = ParseS3Keys(*text);
  OPENSSL_cleanse(text->data(), text->size());
  if (!keys.ok()) {
    return std::move(done)(
        absl::Status(keys.status().code(), absl::StrCat(path_, ": ", keys.status().message())));
  }
  std::move(done)(std::move(keys));
}

BackgroundKeySource::BackgroundKeySource(std::unique_ptr<S3KeySource> below)
    : below_(std::move(below)), thread_("kvkeep-keys", 1) {}

BackgroundKeySource::~BackgroundKeySource() { below_->Stop(); }

void BackgroundKeySource::Fetch(Done done) {
  fetched_ = true;
  thread_.Post([this, done = std::move(done)]() mutable { below_->Fetch(std::move(done)); });
}

bool BackgroundKeySource::Changed() {
  if (!fetched_) return false;
  if (!looking_.exchange(true)) {
    thread_.Post([this] {
      if (below_->Changed()) changed_ = true;
      looking_ = false;
    });
  }
  return changed_.exchange(false);
}

EnvironmentKeySource::EnvironmentKeySource(const KeyEnvironment& environment) {
  const auto read = [&](const char* name) {
    const char* const value = environment(name);
    return absl::string_view(value == nullptr ? "" : value);
  };
  id_ = std::string(read("AWS_ACCESS_KEY_ID"));
  secret_ = SecretText(read("AWS_SECRET_ACCESS_KEY"));
  token_ = std::string(read("AWS_SESSION_TOKEN"));
}

void EnvironmentKeySource::Fetch(Done done) {
  absl::StatusOr<S3Keys> keys = MakeS3Keys(id_, secret_.reveal(), token_);
  if (!keys.ok()) {
    return std::move(done)(absl::Status(
        keys.status().code(),
        absl::StrCat("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN: ",
                     keys.status().message())));
  }
  std::move(done)(std::move(keys));
}

}  // namespace kvkeep
