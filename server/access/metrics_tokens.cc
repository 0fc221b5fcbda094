#include "server/access/metrics_tokens.h"

#include <utility>

#include "tiers/base/status_macros.h"

namespace kvkeep {

absl::StatusOr<std::unique_ptr<MetricsTokens>> MetricsTokens::Load(const std::string& file,
                                                                   const Log* log) {
  KVKEEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Credentials> tokens,
      Credentials::Load({{.tenant = "metrics", .certificate_names = {}, .token_file = file}}));
  return std::unique_ptr<MetricsTokens>(new MetricsTokens(std::move(tokens), log));
}

bool MetricsTokens::Knows(absl::string_view token) {
  for (const Credentials::News& news : tokens_->Reload()) {
    if (news.status.ok()) {
      log_->Info("tokens of metrics read again", {{"file", news.file}});
    } else {
      log_->Error("changed tokens of metrics cannot be used; the previous ones stay in use",
                  {{"reason", std::string(news.status.message())}});
    }
  }
  return tokens_->Identify({.dns_names = {}, .uri_names = {}, .token = token}).ok();
}

}  // namespace kvkeep
