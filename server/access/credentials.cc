#include "server/access/credentials.h"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <cstring>
#include <utility>

#include "server/observe/names.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr size_t kMaxTokenFileBytes = 64 * 1024;

// "", "read" or "write".
Grants GrantsOf(absl::string_view word) {
  return {.read = word != "write", .write = word != "read"};
}

bool IsUri(absl::string_view name) { return absl::StrContains(name, ':'); }

}  // namespace

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Load(
    const std::vector<TenantCredentials>& tenants, bool may_be_open) {
  std::unique_ptr<Credentials> all(new Credentials);
  all->open_ = may_be_open;
  for (uint32_t i = 0; i < tenants.size(); ++i) {
    const TenantCredentials& tenant = tenants[i];
    for (const std::string& entry : tenant.certificate_names) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(entry, absl::MaxSplits(' ', 1));
      const auto& [name, grant] = parts;
      Owner owner{TenantId(i), GrantsOf(grant), absl::StrCat("certificate ", name)};
      if (name == "any") {
        all->any_certificate_ = std::move(owner);
      } else if (IsUri(name)) {
        all->uri_names_.insert_or_assign(name, std::move(owner));
      } else {
        all->dns_names_.insert_or_assign(absl::AsciiStrToLower(name), std::move(owner));
      }
      all->open_ = false;
    }
    if (tenant.token_file.empty()) continue;
    FileChanges changes({tenant.token_file});
    KVKEEP_ASSIGN_OR_RETURN(Tokens tokens, ReadTokens(tenant.token_file));
    all->files_.push_back({TenantId(i), tenant.tenant, tenant.token_file, std::move(changes)});
    MutexLock lock(&all->mu_);
    all->tokens_.push_back(std::make_shared<Tokens>(std::move(tokens)));
    all->open_ = false;
  }
  return all;
}

absl::StatusOr<Credentials::Tokens> Credentials::ReadTokens(const std::string& path) {
  KVKEEP_ASSIGN_OR_RETURN(const std::string text,
                          ReadPrivateFile(path, kMaxTokenFileBytes, Secrecy::kSecret));
  Tokens tokens;
  size_t number = 0;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw.substr(0, raw.find('#')));
    if (line.empty()) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    const bool hex =
        words[0].size() == 64 &&
        words[0].find_first_not_of("0123456789abcdefABCDEF") == absl::string_view::npos;
    const bool granted =
        words.size() == 1 || (words.size() == 2 && (words[1] == "read" || words[1] == "write"));
    if (!hex || !granted) {  // the line is not quoted, as it may be the token itself
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number,
                       ": is not a token's line: write the token's SHA-256 as 64 hex digits, then "
                       "read or write if it grants no more"));
    }
    Token token{.grants = GrantsOf(words.size() == 2 ? words[1] : ""), .line = number};
    const std::string bytes = absl::HexStringToBytes(words[0]);
    std::memcpy(token.sha256.data(), bytes.data(), token.sha256.size());
    tokens.push_back(token);
    if (tokens.size() > kMaxTokensPerFile) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", number, ": is one token too many: ", "at most ", kMaxTokensPerFile));
    }
  }
  return tokens;
}

const Credentials::Owner* Credentials::FindName(const Presented& presented,
                                                bool* two_tenants) const {
  const Owner* owner = nullptr;
  const auto take = [&](const auto& names, const std::string& name) {
    const auto found = names.find(name);
    if (found == names.end()) return;
    if (owner != nullptr && owner->tenant != found->second.tenant) *two_tenants = true;
    if (owner == nullptr) owner = &found->second;
  };
  for (const absl::string_view name : presented.dns_names) {
    take(dns_names_, absl::AsciiStrToLower(name));
  }
  for (const absl::string_view name : presented.uri_names) take(uri_names_, std::string(name));
  return owner;
}

std::optional<Credentials::Owner> Credentials::FindToken(absl::string_view token) const {
  std::array<unsigned char, 32> sha256;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), sha256.data());
  std::vector<std::shared_ptr<const Tokens>> all;
  {
    MutexLock lock(&mu_);
    all = tokens_;
  }
  std::optional<Owner> owner;
  for (size_t i = 0; i < all.size(); ++i) {
    for (const Token& known : *all[i]) {
      if (CRYPTO_memcmp(known.sha256.data(), sha256.data(), sha256.size()) != 0) continue;
      if (owner.has_value()) continue;
      owner = {files_[i].tenant, known.grants,
               absl::StrCat("token ", ShownTenant(files_[i].tenant_name), ":", known.line)};
    }
  }
  return owner;
}

absl::StatusOr<Caller> Credentials::Identify(const Presented& presented) const {
  bool two_tenants = false;
  const Owner* by_name = FindName(presented, &two_tenants);
  if (two_tenants) {
    return absl::UnauthenticatedError("the certificate has names of more than one tenant");
  }
  if (presented.token.has_value()) {
    const size_t bytes = presented.token->size();
    std::optional<Owner> owner;
    if (bytes >= kMinTokenBytes && bytes <= kMaxTokenBytes) owner = FindToken(*presented.token);
    if (!owner.has_value()) {
      return absl::UnauthenticatedError("the token is not known here, or not any more");
    }
    if (by_name == nullptr) return Caller{owner->tenant, owner->grants, owner->shown};
    if (by_name->tenant != owner->tenant) {
      return absl::UnauthenticatedError("the certificate is one tenant's, the token another's");
    }
    return Caller{owner->tenant,
                  {.read = owner->grants.read && by_name->grants.read,
                   .write = owner->grants.write && by_name->grants.write},
                  absl::StrCat(by_name->shown, ", ", owner->shown)};
  }
  if (by_name != nullptr) return Caller{by_name->tenant, by_name->grants, by_name->shown};
  const bool certificate = !presented.dns_names.empty() || !presented.uri_names.empty();
  if (any_certificate_.has_value() && certificate) {
    const absl::string_view name =
        presented.dns_names.empty() ? presented.uri_names.front() : presented.dns_names.front();
    return Caller{any_certificate_->tenant, any_certificate_->grants,
                  absl::StrCat("certificate ", name)};
  }
  if (open_) return Caller{.tenant = TenantId(0), .grants = {}, .who = "anybody"};
  return absl::UnauthenticatedError(
      certificate ? "no tenant has any of the certificate's names; show a token, or another"
                  : "identify yourself by a token, or by a certificate with a DNS or URI name");
}

std::vector<Credentials::News> Credentials::Reload() {
  std::vector<News> news;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (!files_[i].changes.Due()) continue;
    absl::StatusOr<Tokens> tokens = ReadTokens(files_[i].path);
    news.push_back({files_[i].path, tokens.status()});
    if (!tokens.ok()) continue;
    MutexLock lock(&mu_);
    tokens_[i] = std::make_shared<Tokens>(*std::move(tokens));
  }
  return news;
}

}  // namespace kvkeep
