// FleetKeys: what the nodes of a fleet have in common, derived from the one key that they share.
// They are independent: one key gives away none of the others. Wiped when destroyed.
#pragma once

#include <absl/strings/string_view.h>

#include "tiers/base/image.h"
#include "tiers/crypt/image_cipher.h"
#include "tiers/crypt/secret.h"

namespace kvkeep {

struct FleetKeys {
  Uuid id;       // of the fleet: the place of images beyond the node
  Secret name;   // of the names of objects
  Secret header; // of sealed header pages
  Secret epoch;  // of the object that says which epoch it is (fleet_epoch.h)
  MacKey mac{};  // of headers: a node of this fleet wrote this image of this chunk

  // `fleet_name`: two fleets with one key and other names share nothing.
  static FleetKeys Derive(const Secret& fleet_key, absl::string_view fleet_name);
  // Returns the key that encrypts a tenant's payload, with the name that images have for it.
  static DataKey DeriveDataKey(const Secret& fleet_key, absl::string_view fleet_name,
                               absl::string_view tenant);

  FleetKeys() = default;
  FleetKeys(FleetKeys&&) noexcept = default;
  FleetKeys& operator=(FleetKeys&&) noexcept = default;
  ~FleetKeys();
};

}  // namespace kvkeep
