// Keys from the services that clouds have for them, found as their own SDKs find them: by the
// variables that a pod, a task or an instance has in its environment.
//
//   WebIdentityKeySource  a token in a file is exchanged at STS for a role's keys (EKS, MinIO)
//   ContainerKeySource    the agent beside the container (ECS, EKS Pod Identity)
//   InstanceKeySource     the instance's metadata (EC2), version 2 alone: a token is fetched first
//
// Each waits for its answers, so it is asked on a thread of its own (BackgroundKeySource). It asks
// three questions at most, each for KeyService::kAnswerWithin at most. Services are asked anew in
// each Fetch, token files read anew. Errors hold status numbers, codes and names, nothing else of
// an answer.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <memory>
#include <string>

#include "tiers/objects/key_service.h"
#include "tiers/objects/s3_key_source.h"

namespace kvkeep {

// Exchanges a token of the platform's for the keys of its role.
inline constexpr size_t kMaxServiceTokenBytes = 16 * 1024;

class WebIdentityKeySource final : public S3KeySource {
 public:
  // AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN, AWS_ROLE_SESSION_NAME, and where STS is:
  // AWS_ENDPOINT_URL_STS, else the one of AWS_REGION or AWS_DEFAULT_REGION, else of `region`.
  // NotFound and InvalidArgument name the variable.
  static absl::StatusOr<std::unique_ptr<WebIdentityKeySource>> Make(
      const KeyEnvironment& environment, const std::string& region,
      std::unique_ptr<KeyService> service);
  void Fetch(Done done) override { std::move(done)(Ask()); }
  void Stop() override { service_->Stop(); }

 private:
  explicit WebIdentityKeySource(std::unique_ptr<KeyService> service)
      : service_(std::move(service)) {}
  absl::StatusOr<S3Keys> Ask();

  const std::unique_ptr<KeyService> service_;
  std::string token_file_, role_, session_, url_;
};

class ContainerKeySource final : public S3KeySource {
 public:
  // AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE or
  // AWS_CONTAINER_AUTHORIZATION_TOKEN. NotFound and InvalidArgument name the variable.
  static absl::StatusOr<std::unique_ptr<ContainerKeySource>> Make(
      const KeyEnvironment& environment, std::unique_ptr<KeyService> service);
  void Fetch(Done done) override { std::move(done)(Ask()); }
  void Stop() override { service_->Stop(); }

 private:
  explicit ContainerKeySource(std::unique_ptr<KeyService> service) : service_(std::move(service)) {}
  absl::StatusOr<S3Keys> Ask();

  const std::unique_ptr<KeyService> service_;
  std::string url_, token_file_, token_;
};

class InstanceKeySource final : public S3KeySource {
 public:
  // AWS_EC2_METADATA_SERVICE_ENDPOINT or _MODE (IPv4, IPv6), AWS_EC2_METADATA_DISABLED.
  // FailedPrecondition: it is turned off. InvalidArgument names the variable.
  static absl::StatusOr<std::unique_ptr<InstanceKeySource>> Make(
      const KeyEnvironment& environment, std::unique_ptr<KeyService> service);
  void Fetch(Done done) override { std::move(done)(Ask()); }
  void Stop() override { service_->Stop(); }

 private:
  explicit InstanceKeySource(std::unique_ptr<KeyService> service) : service_(std::move(service)) {}
  absl::StatusOr<S3Keys> Ask();
  // Returns the text of an answer with status 200.
  absl::StatusOr<std::string> AskFor(absl::string_view what, HttpRequest request);

  const std::unique_ptr<KeyService> service_;
  std::string root_;
};

}  // namespace kvkeep
