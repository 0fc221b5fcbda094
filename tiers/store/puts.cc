#include "tiers/store/puts.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

uint64_t Puts::Begin(const PendingPut& put) {
  KVKEEP_CHECK(put.blocks > 0 && put.tenant.value() < of_tenant_.size());
  KVKEEP_CHECK(TotalBlocks(put.extents).value() == put.blocks);
  of_tenant_[put.tenant.value()] += put.blocks;
  of_session_[put.session] += put.blocks;
  const uint64_t reservation = next_++;
  KVKEEP_CHECK(puts_.emplace(reservation, put).second);
  return reservation;
}

const PendingPut& Puts::at(uint64_t reservation) const {
  const auto found = puts_.find(reservation);
  KVKEEP_CHECK(found != puts_.end());
  return found->second;
}

PendingPut Puts::End(uint64_t reservation) {
  const auto found = puts_.find(reservation);
  KVKEEP_CHECK(found != puts_.end());
  PendingPut put = std::move(found->second);
  puts_.erase(found);
  KVKEEP_CHECK(of_tenant_[put.tenant.value()] >= put.blocks);
  of_tenant_[put.tenant.value()] -= put.blocks;
  const auto session = of_session_.find(put.session);
  KVKEEP_CHECK(session != of_session_.end() && session->second >= put.blocks);
  session->second -= put.blocks;
  if (session->second == 0) of_session_.erase(session);
  return put;
}

uint64_t Puts::blocks_of(const SessionToken& session) const {
  const auto found = of_session_.find(session);
  return found == of_session_.end() ? 0 : found->second;
}

bool Puts::HasOneOf(uint64_t blocks) const {
  return std::any_of(puts_.begin(), puts_.end(),
                     [blocks](const auto& put) { return put.second.blocks == blocks; });
}

void Puts::CheckInvariants() const {
  std::vector<uint64_t> of_tenant(of_tenant_.size());
  absl::btree_map<SessionToken, uint64_t> of_session;
  for (const auto& [reservation, put] : puts_) {
    KVKEEP_CHECK(reservation < next_ && TotalBlocks(put.extents).value() == put.blocks);
    of_tenant[put.tenant.value()] += put.blocks;
    of_session[put.session] += put.blocks;
  }
  KVKEEP_CHECK(of_tenant == of_tenant_ && of_session == of_session_);
}

}  // namespace kvkeep::store_internal
