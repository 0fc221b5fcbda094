// Messages of the local protocol for tests: contents of replies. bodies.h has bodies of requests.
#pragma once

#include <absl/status/status.h>

#include <string>
#include <vector>

#include "proto/local/message.h"
#include "tests/server/local/bodies.h"

namespace kvkeep {

struct SentMessage {
  uint16_t kind = 0;
  uint64_t id = 0;
  std::vector<std::byte> body;  // of a reply, behind the ReplyHead
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

// A chunk that a get found.
struct TestPlace {
  local::Place place;
  std::vector<local::ImageRun> runs;
};
struct TestFound {
  local::LookupReply head;
  local::LookupCost cost;
  local::RemoteReply remote;   // if it was requested
  std::string g2, g3, coming;  // the bitmaps
  std::vector<TestPlace> places;
};

// Parses a whole message; fails the test if it is none.
SentMessage ReadMessage(std::span<const std::byte> message, std::vector<UniqueFd> descriptors);

// Reads the reply of a get or lookup.
TestFound ReadFound(const SentMessage& reply);
// Returns "copied TAIL", "miss", "failed MESSAGE" for every chunk, separated by "; ".
std::string ReadGpuAnswers(const SentMessage& reply);
// Returns "stored", "present", "rejected 3: message" for every chunk in order.
std::string ReadAnswers(const SentMessage& reply);

}  // namespace kvkeep
