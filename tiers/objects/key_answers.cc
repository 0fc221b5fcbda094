#include "tiers/objects/key_answers.h"

#include <absl/cleanup/cleanup.h>
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tiers/base/status_macros.h"
#include "tiers/objects/s3_key_source.h"
#include "tiers/objects/xml.h"

namespace kvkeep {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxWordBytes = 64;

absl::Status BadKeys(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the keys that came ", what));
}

// Returns `text` if it is a single word, else nothing: a code is shown to people.
std::string AsCode(absl::string_view text) {
  const bool word = text.size() <= kMaxWordBytes &&
                    std::all_of(text.begin(), text.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                             c == '-' || c == '_';
                    });
  return std::string(word ? text : "");
}

// Text is wiped before its memory is given back: one of them is a secret.
class JsonFields {
 public:
  explicit JsonFields(absl::string_view text) : json_(Json::parse(text, nullptr, false)) {}
  JsonFields(const JsonFields&) = delete;
  JsonFields& operator=(const JsonFields&) = delete;
  ~JsonFields() {
    if (!is_object()) return;
    for (auto& field : json_) {
      if (!field.is_string()) continue;
      std::string& said = field.get_ref<std::string&>();
      OPENSSL_cleanse(said.data(), said.size());
    }
  }

  bool is_object() const { return json_.is_object(); }
  const Json* Find(const char* name) const {
    const auto at = json_.find(name);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  // Returns the field's text; empty if the field is absent.
  absl::StatusOr<absl::string_view> Text(const char* name) const {
    const Json* const field = Find(name);
    if (field == nullptr) return absl::string_view();
    if (!field->is_string()) return BadKeys(absl::StrCat("have a ", name, " that is no text"));
    return absl::string_view(field->get_ref<const std::string&>());
  }

 private:
  Json json_;
};

void Wipe(XmlElement& element) {
  OPENSSL_cleanse(element.text.data(), element.text.size());
  for (XmlElement& child : element.children) Wipe(child);
}

// RFC 3339, with any offset; programs write their own. Empty: the keys do not expire.
absl::StatusOr<std::optional<UnixSeconds>> ParseExpiration(absl::string_view text) {
  if (text.empty()) return std::optional<UnixSeconds>();
  absl::Time at;
  std::string why;
  const absl::CivilYear latest(9999);
  if (!absl::ParseTime(absl::RFC3339_full, text, &at, &why) || at < absl::UnixEpoch() ||
      at >= absl::FromCivil(latest + 1, absl::UTCTimeZone())) {
    return BadKeys("have an Expiration that is no time as 2026-11-29T06:00:00Z");
  }
  return UnixSeconds(absl::ToUnixSeconds(at));
}

absl::StatusOr<S3Keys> KeysOf(absl::string_view id, absl::string_view secret,
                              absl::string_view token, absl::string_view expiration) {
  absl::StatusOr<S3Keys> keys = MakeS3Keys(id, secret, token);
  if (!keys.ok()) return BadKeys(absl::StrCat("cannot be used: ", keys.status().message()));
  KVKEEP_ASSIGN_OR_RETURN(keys->expires, ParseExpiration(expiration));
  return keys;
}

absl::StatusOr<S3Keys> KeysOf(const JsonFields& json, const char* token_field) {
  KVKEEP_ASSIGN_OR_RETURN(const absl::string_view id, json.Text("AccessKeyId"));
  KVKEEP_ASSIGN_OR_RETURN(const absl::string_view secret, json.Text("SecretAccessKey"));
  KVKEEP_ASSIGN_OR_RETURN(const absl::string_view token, json.Text(token_field));
  KVKEEP_ASSIGN_OR_RETURN(const absl::string_view expiration, json.Text("Expiration"));
  return KeysOf(id, secret, token, expiration);
}

}  // namespace

absl::StatusOr<S3Keys> ParseMetadataKeys(absl::string_view json) {
  const JsonFields fields(json);
  if (!fields.is_object()) return BadKeys("are no JSON object");
  KVKEEP_ASSIGN_OR_RETURN(const absl::string_view code, fields.Text("Code"));
  if (!code.empty() && code != "Success") {
    return absl::UnavailableError(absl::StrCat("says ", AsCode(code), " in place of keys"));
  }
  return KeysOf(fields, "Token");
}

absl::StatusOr<S3Keys> ParseProcessKeys(absl::string_view json) {
  const JsonFields fields(json);
  if (!fields.is_object()) return BadKeys("are no JSON object");
  const Json* const version = fields.Find("Version");
  if (version == nullptr || *version != 1) return BadKeys("have no Version that is 1");
  return KeysOf(fields, "SessionToken");
}

absl::StatusOr<S3Keys> ParseStsKeys(absl::string_view xml) {
  absl::StatusOr<XmlElement> root = ParseXml(xml);
  if (!root.ok()) return BadKeys("are no XML");
  const absl::Cleanup wipe = [&root] { Wipe(*root); };
  const XmlElement* const result = root->Child("AssumeRoleWithWebIdentityResult");
  const XmlElement* const keys = result == nullptr ? nullptr : result->Child("Credentials");
  if (keys == nullptr) return BadKeys("are in no answer to AssumeRoleWithWebIdentity");
  return KeysOf(keys->TextOf("AccessKeyId"), keys->TextOf("SecretAccessKey"),
                keys->TextOf("SessionToken"), keys->TextOf("Expiration"));
}

std::string StsErrorCode(absl::string_view xml) {
  const absl::StatusOr<XmlElement> root = ParseXml(xml);
  const XmlElement* const error = root.ok() ? root->Child("Error") : nullptr;
  return error == nullptr ? "" : AsCode(error->TextOf("Code"));
}

}  // namespace kvkeep
