#include "tiers/remote/fleet_keys.h"

#include <absl/strings/escaping.h>

#include <catch2/catch.hpp>
#include <set>

#include "tests/fakes/stored_page.h"
#include "tiers/base/bytes.h"
#include "tiers/remote/object_name.h"

namespace kvkeep {
namespace {

Secret FleetKey(uint8_t first) {
  const auto bytes = CountedFrom<std::array<std::byte, 32>>(first);
  return Secret(bytes);
}

std::string HexOf(std::span<const std::byte> bytes) {
  return absl::BytesToHexString(AsText(bytes));
}

std::set<std::string> All(const FleetKeys& keys) {
  return {keys.id.ToHex(), HexOf(keys.name.bytes()), HexOf(keys.header.bytes()),
          HexOf(keys.mac)};
}

}  // namespace

TEST_CASE("the keys of a fleet are those that its nodes have derived since the first release") {
  const FleetKeys keys = FleetKeys::Derive(FleetKey(0), "fleet");
  CHECK(keys.id.ToHex() == "0537f837d84a8d6de3fd5b82d5e31ce2");
  CHECK(HexOf(keys.name.bytes()) ==
        "92950eb0bc06ab1ae3e0b4c7af7abf07f35ea7646014b31e4df1c54ef301ba65");
  CHECK(HexOf(keys.header.bytes()) ==
        "79e762301e06d6ab6acbbcc18fc105851e89619234d4c730f08393855419d51a");
  CHECK(HexOf(keys.mac) ==
        "c2fd267a14074ae81cb70d6cb73e97e7c8f9190b54f36b5efb2c19c08c7efa2f");
  CHECK(HexOf(FleetKeys::DeriveDataKey(FleetKey(0), "fleet", "acme").secret.bytes()) ==
        "d1cab2cd4e81387be86f42c59eff721a748cd28bfbe6babe381ec34000d105a7");
}

TEST_CASE("no two keys are alike: of one fleet, of two keys, of two names, of two tenants") {
  std::set<std::string> all = All(FleetKeys::Derive(FleetKey(0), "fleet"));
  all.merge(All(FleetKeys::Derive(FleetKey(1), "fleet")));
  all.merge(All(FleetKeys::Derive(FleetKey(0), "fleet2")));
  for (const char* tenant : {"", "a", "b"}) {
    all.insert(HexOf(FleetKeys::DeriveDataKey(FleetKey(0), "fleet", tenant).secret.bytes()));
  }
  CHECK(all.size() == 15);
}

TEST_CASE("an object's name is that of its chunk for ever, and tells nothing of it") {
  const FleetKeys keys = FleetKeys::Derive(FleetKey(0), "fleet");
  const ChunkId id{CountedFrom<NamespaceDigest>(1), CountedFrom<ChunkKey>(50), PartId(7)};
  const std::string name = NameOfObject(keys.name, {}, id);
  CHECK(name == "1/703/703977a70e00bd49fe2b4b5d9885b3c9f5751414");
  CHECK(name.substr(2, 3) == name.substr(6, 3));
  std::set<std::string> names = {
      name, NameOfObject(keys.name, {.configured = 1}, id),
      NameOfObject(keys.name, {.begun = 1}, id),
      NameOfObject(FleetKeys::Derive(FleetKey(1), "fleet").name, {}, id)};
  ChunkId other = id;
  other.part = PartId(8);
  names.insert(NameOfObject(keys.name, {}, other));
  other = id;
  other.key.bytes[31] ^= 1;
  names.insert(NameOfObject(keys.name, {}, other));
  other = id;
  other.ns.bytes[0] ^= 1;
  names.insert(NameOfObject(keys.name, {}, other));
  CHECK(names.size() == 7);
}

}  // namespace kvkeep
