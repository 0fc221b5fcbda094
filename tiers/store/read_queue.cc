#include "tiers/store/read_queue.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

template <typename Owner, typename Queue>
uint64_t ReadQueue::Turns<Owner, Queue>::BytesWithin(const Owner& owner, uint64_t own) const {
  uint64_t all = own;
  for (const Waiting& waiting : order_) {
    if (waiting.owner != owner) all += std::min(waiting.bytes, own);
  }
  return all;
}

void ReadQueue::Push(const Asker& asker, ChunkSlot slot, uint64_t bytes) {
  tenants_.Of(asker.tenant, bytes).Of(asker.session, bytes).push_back({slot, bytes});
  bytes_ += bytes;
}

void ReadQueue::Pop() {
  KVKEEP_CHECK(!empty());
  OfTenant& tenant = tenants_.front();
  const uint64_t bytes = tenant.front().front().bytes;
  tenant.front().pop_front();
  tenant.Charge(bytes);
  tenants_.Charge(bytes);
  bytes_ -= bytes;
}

uint64_t ReadQueue::BytesBefore(const Asker& asker, uint64_t more) const {
  static const OfTenant nothing;
  const OfTenant* known = tenants_.Find(asker.tenant);
  const OfTenant& tenant = known == nullptr ? nothing : *known;
  const uint64_t of_session = tenant.BytesOf(asker.session) + more;
  return tenants_.BytesWithin(asker.tenant, tenant.BytesWithin(asker.session, of_session)) - more;
}

}  // namespace kvkeep::store_internal
