// S3Keys: the keys that sign requests to a bucket. A constant value, shared by the requests that
// are on their way. Its secret is wiped when the last of them is done, and never printed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tiers/objects/http_date.h"
#include "tiers/objects/secret_text.h"

namespace kvkeep {

struct S3Keys {
  std::string access_key_id;
  SecretText secret_access_key;
  std::string session_token;           // empty: keys that do not expire have none
  std::optional<UnixSeconds> expires;  // none: never

  bool operator==(const S3Keys&) const = default;
};
using SharedS3Keys = std::shared_ptr<const S3Keys>;

}  // namespace kvkeep
