#include "tiers/objects/key_choice.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/objects/process_key_source.h"
#include "tiers/objects/service_key_source.h"

namespace kvkeep {
namespace {

// Services answer from farther away than a bucket's server, and nobody waits for them.
constexpr std::chrono::milliseconds kConnectWithin{3000};

absl::StatusOr<std::unique_ptr<KeyService>> MakeService(const CurlEngineOptions& bucket,
                                                        const std::string& proxy, Clock* clock) {
  CurlEngineOptions options{.connections = 1, .connect_within = kConnectWithin};
  options.ca_file = bucket.ca_file;
  options.proxy = proxy;
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<HttpEngine> http, CurlEngine::Make(options, clock));
  return std::make_unique<KeyService>(std::move(http), clock);
}

bool IsSet(const KeyEnvironment& environment, const char* name) {
  const char* const value = environment(name);
  return value != nullptr && *value != '\0';
}

// Returns the name of the source to use; empty: there is none.
std::string ChooseSource(const S3KeyOptions& options, const KeyEnvironment& environment) {
  if (!options.file.empty()) return "file";
  if (!options.process.empty()) return "process";
  if (IsSet(environment, "AWS_ACCESS_KEY_ID") || IsSet(environment, "AWS_SECRET_ACCESS_KEY")) {
    return "environment";
  }
  if (IsSet(environment, "AWS_WEB_IDENTITY_TOKEN_FILE")) return "web_identity";
  if (IsSet(environment, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
      IsSet(environment, "AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
    return "container";
  }
  return "";
}

// Returns the source as a pointer to its base class.
template <typename Source>
absl::StatusOr<std::unique_ptr<S3KeySource>> AsSource(
    absl::StatusOr<std::unique_ptr<Source>> source) {
  if (!source.ok()) return source.status();
  return std::unique_ptr<S3KeySource>(*std::move(source));
}

}  // namespace

absl::StatusOr<std::unique_ptr<S3KeySource>> MakeS3KeySource(const S3KeyOptions& options,
                                                             const std::string& region,
                                                             const CurlEngineOptions& http,
                                                             const KeyEnvironment& environment,
                                                             Clock* clock) {
  const std::string chosen =
      options.credentials == "auto" ? ChooseSource(options, environment) : options.credentials;
  if (chosen == "file") {
    if (options.file.empty()) {
      return absl::NotFoundError("g4.credentials: file needs g4.credentials_file");
    }
    return std::make_unique<FileKeySource>(options.file);
  }
  if (chosen == "process") return AsSource(ProcessKeySource::Make(options.process));
  if (chosen == "environment") return std::make_unique<EnvironmentKeySource>(environment);
  if (chosen == "web_identity") {
    KVKEEP_ASSIGN_OR_RETURN(auto service, MakeService(http, http.proxy, clock));
    return AsSource(WebIdentityKeySource::Make(environment, region, std::move(service)));
  }
  if (chosen == "container") {
    KVKEEP_ASSIGN_OR_RETURN(auto service, MakeService(http, "", clock));
    return AsSource(ContainerKeySource::Make(environment, std::move(service)));
  }
  if (chosen == "instance") {
    KVKEEP_ASSIGN_OR_RETURN(auto service, MakeService(http, "", clock));
    return AsSource(InstanceKeySource::Make(environment, std::move(service)));
  }
  if (!chosen.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("g4.credentials: there is no '", chosen, "'"));
  }
  return absl::NotFoundError(
      "no credentials for g4.url: set g4.credentials_file or g4.credential_process, give the "
      "daemon's environment AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the variables of a web "
      "identity or of a container's agent, or set g4.credentials: instance");
}

}  // namespace kvkeep
