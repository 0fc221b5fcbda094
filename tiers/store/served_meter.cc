#include "tiers/store/served_meter.h"

#include <utility>

#include "tiers/store/section.h"

namespace kvkeep::store_internal {

void ServedMeter::Count(const Session* session, const NamespaceDigest& ns, const Served& served) {
  StoreCounters& counters = chunks_.counters;
  counters.read_g2_hits += served.g2.chunks;
  counters.read_g3_hits += served.g3.chunks;
  counters.served_g2_bytes += served.g2.bytes;
  counters.served_g3_bytes += served.g3.bytes;
  if (served.g4.chunks > 0) {
    beyond_->tier.counters.read_hits += served.g4.chunks;
    beyond_->tier.counters.served_bytes += served.g4.bytes;
  }
  if (session == nullptr) return;
  meters.Served(ns, session->namespaces.at(ns), served.chunks());
  const TenantId owner = owners_.OwnerOf(ns);
  if (owner == session->tenant() || served.chunks() == 0) return;
  counters.foreign_read_chunks += served.chunks();
  counters.foreign_read_bytes += served.bytes();
  meters.foreign().Add(session->info, ns, owner, served.chunks(), served.bytes());
}

std::vector<ForeignRead> ServedMeter::TakeForeignReads() {
  ForeignReads taken;
  {
    // Each tick asks for this, so it must not wake a store that is at rest.
    Section section(&chunks_, Section::Kind::kNotMeasured);
    std::swap(taken, meters.foreign());
  }
  return taken.Take();
}

}  // namespace kvkeep::store_internal
