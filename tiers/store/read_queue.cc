#include "tiers/store/read_queue.h"

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

void ReadQueue::Push(const Asker& asker, ChunkSlot slot, uint64_t bytes) {
  tenants_.Add(asker.tenant, bytes).Add(asker.session, bytes).push_back({slot, bytes});
}

void ReadQueue::Pop() {
  KVKEEP_CHECK(!empty());
  OfTenant& tenant = tenants_.front();
  const uint64_t bytes = tenant.front().front().bytes;
  tenant.front().pop_front();
  tenant.Take(bytes);
  tenants_.Take(bytes);
}

uint64_t ReadQueue::BytesBefore(const Asker& asker, uint64_t more) const {
  uint64_t in_tenant = more;
  if (const OfTenant* const tenant = tenants_.Find(asker.tenant); tenant != nullptr) {
    const uint64_t own = tenant->BytesOf(asker.session) + more;
    in_tenant = tenant->BytesWithin(asker.session, own);
  }
  return tenants_.BytesWithin(asker.tenant, in_tenant) - more;
}

}  // namespace kvkeep::store_internal
