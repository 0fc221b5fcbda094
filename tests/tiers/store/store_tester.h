// StoreTester: a store in a World, one session, and a mini language in which the tests of the store
// read as stories. Chunks are numbers; answers are words, so that a failed CHECK explains itself.
//
// Bytes of a put follow from the chunk's number and how often it was put, so Get judges what comes
// back: "hit" is the whole bytes of the latest put, "old" those of an earlier one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/sim/payload.h"
#include "tests/sim/world.h"

namespace kvkeep {

struct PutHow {
  bool durable = false;
  bool no_g3 = false;
  bool transient = false;
  std::optional<uint64_t> parent = std::nullopt;
  uint32_t tail_bytes = 0;
};

// A small G2 (64 blocks of 4 KiB, one segment) over one device of 512 blocks.
WorldOptions SmallWorld();

class StoreTester {
 public:
  explicit StoreTester(const WorldOptions& options = SmallWorld(), uint64_t bytes_per_part = 0);

  // Returns "stored", "present", "no space", "limit", "wrong size", "draining", else the status.
  std::string Put(uint64_t name, size_t bytes = 4096, const PutHow& how = {});
  // Reserves only; returns the answer as above, "reserved" if it worked.
  std::string Reserve(uint64_t name, size_t bytes, Reservation* out, const PutHow& how = {});
  // Fills and seals; returns "stored", "present" or the status.
  std::string Seal(uint64_t name, Reservation reservation);

  // Reads the whole chunk and runs everything until it is there. Returns "hit", "old", "miss",
  // "busy", "damaged", "away" (its device failed), "wrong" (bytes of no put), "stuck", else the
  // status.
  std::string Get(uint64_t name, LeaseId lease = LeaseId(0));
  // Pins without waiting; returns an empty reader if it was no hit.
  ChunkReader Pin(uint64_t name, LeaseId lease = LeaseId(0));
  // Judges the bytes of a reader whose pieces are all ready: "hit", "old" or "wrong".
  std::string Bytes(uint64_t name, const ChunkReader& reader);
  // Waits for pieces; returns "ok", "damaged", "away", "waiting", after running everything.
  std::string WaitFor(ChunkReader& reader, size_t first, size_t count);

  LookupResult Lookup(const std::vector<uint64_t>& names, LeaseMode mode = LeaseMode::kLeadingRun,
                      uint64_t request_id = 0);
  // Returns "", "2", "3" or "23": the tiers where a lookup finds it.
  std::string Where(uint64_t name);
  absl::Status Release(LeaseId lease, uint32_t keep_keys = 0) {
    return store().Release(session, lease, keep_keys);
  }
  uint64_t Delete(const std::vector<uint64_t>& names);
  void Touch(const std::vector<uint64_t>& names);
  // Returns the answer of a WhenDurable that is asked now: "ok", a status code's name, or
  // "waiting".
  std::string Durable(uint64_t name);
  void WhenDurable(uint64_t name, std::string* answer);

  // Puts new chunks of one block of payload until G2 has turned over; they stay out of G3.
  void FloodG2();
  void Settle() { world.Settle(); }
  void RunAll() { world.RunAll(); }
  // Passes time in ticks of a tenth of a second, and does work as it comes.
  void Pass(std::chrono::milliseconds time);

  // Ends the process in this way and starts another one, with a new session.
  void KillAndStart();
  void PowerCutAndStart();
  // Ends the process and starts another one, on a node whose both tiers are empty.
  void LoseNode();
  // Opens a new session of the same namespace.
  void Connect();

  ChunkId Id(uint64_t name) const { return {ns, MakeKey(name), PartId(0)}; }
  Store& store() { return world.store(); }
  StoreCounters counters() { return store().snapshot().counters; }
  // Returns the device block where the image of `name` begins; it must be stored.
  uint64_t DeviceBlock(uint64_t name, size_t device = 0);
  std::span<std::byte> OnDisk(uint64_t block, uint64_t blocks, size_t device = 0) {
    return world.disk(device).bytes().subspan(block * kBlockBytes, blocks * kBlockBytes);
  }

  World world;
  SessionToken session;
  NamespaceDigest ns;
  std::string message;  // of the last rejection

 private:
  const uint64_t bytes_per_part_;
  std::map<uint64_t, std::vector<std::vector<std::byte>>> puts_;  // payloads, oldest first
  uint64_t next_flood_ = 1'000'000;
};

// Makes a chunk that only G3 has: put, written back, and read by a process that begins then.
void PutIntoG3(StoreTester& s, uint64_t name, size_t bytes, uint32_t tail_bytes = 0);

}  // namespace kvkeep
