#include "tiers/store/read_queue.h"

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

void ReadQueue::Push(const Requester& requester, ChunkSlot slot, uint64_t bytes) {
  tenants_.Add(requester.tenant, bytes).Add(requester.session, bytes).push_back({slot, bytes});
}

void ReadQueue::Pop() {
  KVKEEP_CHECK(!empty());
  OfTenant& tenant = tenants_.front();
  const uint64_t bytes = tenant.front().front().bytes;
  tenant.front().pop_front();
  tenant.Take(bytes);
  tenants_.Take(bytes);
}

uint64_t ReadQueue::BytesBefore(const Requester& requester, uint64_t more) const {
  uint64_t in_tenant = more;
  if (const OfTenant* const tenant = tenants_.Find(requester.tenant); tenant != nullptr) {
    const uint64_t own = tenant->BytesOf(requester.session) + more;
    in_tenant = tenant->BytesWithin(requester.session, own);
  }
  return tenants_.BytesWithin(requester.tenant, in_tenant) - more;
}

}  // namespace kvkeep::store_internal
