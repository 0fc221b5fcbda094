#include "tiers/remote/fleet_keys.h"

#include <absl/strings/str_cat.h>
#include <openssl/crypto.h>

#include <string>

#include "tiers/base/bytes.h"
#include "tiers/base/hmac.h"

namespace kvkeep {
namespace {

void DeriveFleet(const Secret& fleet_key, absl::string_view fleet_name, absl::string_view info,
                 std::span<std::byte> out) {
  const std::string salt = absl::StrCat("kvkeep fleet 1 ", fleet_name);
  HkdfSha256(fleet_key.bytes(), AsBytes(salt), AsBytes(info), out);
}

}  // namespace

FleetKeys FleetKeys::Derive(const Secret& fleet_key, absl::string_view fleet_name) {
  FleetKeys keys;
  DeriveFleet(fleet_key, fleet_name, "id", std::as_writable_bytes(std::span(keys.id.bytes)));
  DeriveFleet(fleet_key, fleet_name, "name", keys.name.writable());
  DeriveFleet(fleet_key, fleet_name, "header", keys.header.writable());
  DeriveFleet(fleet_key, fleet_name, "epoch", keys.epoch.writable());
  DeriveFleet(fleet_key, fleet_name, "mac", keys.mac);
  return keys;
}

DataKey FleetKeys::DeriveDataKey(const Secret& fleet_key, absl::string_view fleet_name,
                                 absl::string_view tenant) {
  DataKey key;
  DeriveFleet(fleet_key, fleet_name, absl::StrCat("data id ", tenant),
              std::as_writable_bytes(std::span(key.id.bytes)));
  DeriveFleet(fleet_key, fleet_name, absl::StrCat("data ", tenant), key.secret.writable());
  return key;
}

FleetKeys::~FleetKeys() { OPENSSL_cleanse(mac.data(), mac.size()); }

}  // namespace kvkeep
