// Messages of the local protocol for tests: bodies of requests, and what replies say.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "proto/local/message.h"
#include "tests/sim/payload.h"
#include "tiers/store/types.h"

namespace kvkeep {

struct SentMessage {
  uint16_t kind = 0;
  uint64_t id = 0;
  std::vector<std::byte> body;  // behind the ReplyHead, of a reply
  absl::Status status;          // of a reply
  std::vector<UniqueFd> descriptors;

  bool is(local::Kind wanted) const {
    return (kind & ~local::kReplyBit) == static_cast<uint16_t>(wanted);
  }
  template <typename T>
  T As() const {
    T value;
    RequireBytes(sizeof(T));
    std::memcpy(&value, body.data(), sizeof(T));
    return value;
  }
  std::string text() const {
    return std::string(reinterpret_cast<const char*>(body.data()), body.size());
  }

 private:
  void RequireBytes(size_t bytes) const;
};

// One chunk of a put, its payload lying in staging memory from `offset` on in `runs` equal runs.
struct TestChunk {
  uint64_t name = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t runs = 1;
  uint32_t flags = 0;
  uint32_t part = 0;
  uint64_t checksum = 0;
  std::string tail = "";
  uint32_t region = local::kStagingRegion;
};

// What a get found.
struct TestPlace {
  local::Place place;
  std::vector<local::ImageRun> runs;
};
struct TestFound {
  local::LookupReply head;
  std::string g2, g3;  // the bitmaps
  std::vector<TestPlace> places;
};

// A whole message, taken apart; fails the test when it is none.
SentMessage ReadMessage(std::span<const std::byte> message, std::vector<UniqueFd> descriptors);

std::vector<std::byte> HelloBody(const std::string& name = "test");
// Of four parts whose sizes vary.
std::vector<std::byte> NamespaceBody();
std::vector<std::byte> KeysBody(const NamespaceDigest& ns, const std::vector<uint64_t>& names,
                                LeaseMode mode,
                                const std::vector<local::ReleaseEntry>& releases = {},
                                uint64_t request_id = 0, const std::vector<uint32_t>& parts = {0});
std::vector<std::byte> PutBody(const NamespaceDigest& ns, const std::vector<TestChunk>& chunks);

// Of a get or lookup.
TestFound ReadFound(const SentMessage& reply);
// "stored", "present", "rejected 3: message" of every chunk, one after the other.
std::string ReadAnswers(const SentMessage& reply);

}  // namespace kvkeep
