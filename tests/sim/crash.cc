// The end of a process, what becomes of G2's memory, and what the next one must find.
#include <cstdio>

#include "tests/sim/simulator.h"
#include "tiers/base/check.h"

namespace kvkeep {

std::set<uint64_t> Simulator::Stored(std::vector<uint64_t> LookupResult::*tier) {
  const Uninterrupted alone(&alone_);
  std::set<uint64_t> stored;
  const std::vector<PartId> parts = {PartId(0)};
  for (uint64_t name = 0; name < kNames; ++name) {
    const std::vector<ChunkKey> keys = {MakeKey(name)};
    const auto found = world_.store().Lookup(clients_[0].token, {.chunks = {ns_, keys, parts}});
    if (((*found).*tier)[0] != 0) stored.insert(name);
  }
  return stored;
}

CommitSequence Simulator::RecordOf(uint64_t name) {
  const ChunkId id{ns_, MakeKey(name), PartId(0)};
  CommitSequence sequence;
  for (size_t device = 0; device < world_options_.device_blocks.size(); ++device) {
    KVKEEP_CHECK(world_.index(device)
                     .Scan([&](const IndexRecord& record) {
                       if (record.id == id) sequence = record.sequence;
                       return true;
                     })
                     .ok());
  }
  return sequence;
}

// A process is about to end: what it did goes into the report.
void Simulator::CountProcess() {
  const StoreCounters counters = world_.store().snapshot().counters;
  report_.promotions += counters.promotions;
  report_.evictions += counters.g2_evictions + counters.g3_evictions;
  report_.recovered_in_g2 += counters.recovered_g2_chunks;
}

// What becomes of the memory of G2 between two processes. False: not all that was there is kept.
bool Simulator::KeepArena(bool power) {
  if (power || !world_options_.arena_outlives) return false;
  if (random_.Chance(0.2)) {
    world_.LoseArena();
    return false;
  }
  if (faultless_ || random_.Chance(0.5)) return true;
  world_.DamageArena();
  return false;
}

void Simulator::DoCrash(bool power) {
  CountProcess();
  Log(power ? "power cut" : "kill");
  ++(power ? report_.power_cuts : report_.kills);
  std::set<uint64_t> must_be_there = Stored(&LookupResult::g3_parts);
  const std::set<uint64_t> in_g2 = Stored(&LookupResult::g2_parts);
  if (power) {  // only what was acknowledged, and neither evicted nor deleted since
    std::erase_if(must_be_there, [this](uint64_t name) {
      const auto found = durable_.find(name);
      return found == durable_.end() || found->second != RecordOf(name);
    });
  }
  const Uninterrupted alone(&alone_);
  ++process_;
  crashed_ = true;
  callbacks_due_ = 0;
  clients_.clear();
  power ? world_.PowerCut() : world_.Kill();
  // A delete that had not reached an index is undone by the crash; in G2 none is.
  const bool has_index = !world_options_.device_blocks.empty();
  for (auto& [name, state] : names_) state.deleted_up_to = has_index ? 0 : state.deleted_up_to;
  if (power) {
    durable_.clear();
    for (uint64_t name = 0; name < names_end_; ++name) {
      if (!must_be_there.contains(name)) unsure_.insert(name);
    }
  }
  const bool kept = KeepArena(power);
  world_.Start();
  clients_.resize(random_.Between(1, 4));
  for (Client& client : clients_) Connect(client);
  world_.store().CheckInvariants();
  // A small table may have no room for them all: removed records that come back take theirs.
  const bool room = world_options_.store.max_chunks > 2 * kNames;
  if (kept && room) CheckSurvivors(in_g2, &LookupResult::g2_parts);
  if (faultless_) {
    world_.RunAll();  // headers of unsure records are read first
    CheckSurvivors(must_be_there, &LookupResult::g3_parts);
  }
}

void Simulator::CheckSurvivors(const std::set<uint64_t>& must_be_there,
                               std::vector<uint64_t> LookupResult::*tier) {
  const std::set<uint64_t> there = Stored(tier);
  for (const uint64_t name : must_be_there) {
    if (!there.contains(name)) std::printf("lost by the crash: %lu\n", name);
    KVKEEP_CHECK(there.contains(name));
  }
}

}  // namespace kvkeep
