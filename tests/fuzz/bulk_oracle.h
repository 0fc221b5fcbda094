// BulkOracle: judges what the daemon writes to one client of the bulk door. Ends the process
// (KVKEEP_CHECK) if a frame is not well-formed or not due, if a hit has bytes that nobody put under
// its key, or if a chunk is stored whose checksums were wrong.
//
// It is told what the client says. While the client says whole frames, each answer has to be that
// of its call.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvkeep/v1/bulk.pb.h"
#include "kvkeep/v1/kvkeep.pb.h"
#include "proto/bulk/frame.h"

namespace kvkeep {

// The chunks that clients sent whole, with the right checksums. An id is a namespace, key and part.
class SentChunks {
 public:
  struct Chunk {
    std::string payload, metadata;
  };

  static std::string IdOf(const std::string& ns, const std::string& key, uint32_t part);
  void Add(const std::string& id, Chunk chunk);
  // Returns a chunk that a frame may be of: with this id, or any without one; null: none.
  const Chunk* Match(const std::optional<std::string>& id, const v1::GetFrame& frame,
                     const std::string& payload) const;
  uint64_t bytes() const { return bytes_; }

 private:
  std::map<std::string, std::list<Chunk>> chunks_;
  uint64_t bytes_ = 0;
};

class BulkOracle {
 public:
  explicit BulkOracle(const SentChunks* sent) : sent_(sent) {}

  // The client says a frame. `ids`: in the order of the answer.
  void SaysGet(std::vector<std::string> ids, size_t parts);
  void SaysPut(bool is_right);
  void SaysPutDone();
  // The frame of the last put is the end of so many bytes of the client's.
  void PutEndsAt(uint64_t bytes) { put_ends_.push_back(bytes); }
  // The client says what need not be frames: answers are not matched with calls from here on.
  void Muddle() { muddled_ = true; }
  // The connection has proved to be between two calls.
  void StartAfresh();
  // The connection takes no further call.
  void EndsSoon() { ends_soon_ = true; }

  // The daemon reads, and writes.
  void Reads(uint64_t bytes);
  void Writes(std::span<const std::byte> bytes);

  bool greeted() const { return greeted_; }
  uint64_t calls_ended() const { return calls_ended_; }

 private:
  struct Call {
    bool is_get = false;
    std::vector<std::string> ids;  // of a get
    size_t parts = 1;
    std::vector<bool> right;  // of a put: by chunk
    bool done = false;
    size_t answered = 0;  // chunks
  };

  void Take(const bulk::FrameHead& head, const std::string& message, const std::string& payload);
  void TakeChunk(const v1::GetFrame& frame, const std::string& payload);
  void TakeResult(const v1::PutResult& result);
  void TakeEnd(const v1::BulkEnd& end);

  const SentChunks* const sent_;
  std::string written_;  // of a frame that is not complete
  bool greeted_ = false, over_ = false, muddled_ = false, ends_soon_ = false;
  std::deque<Call> calls_;
  uint64_t calls_ended_ = 0, ended_since_ = 0;  // since EndsSoon
  uint64_t bytes_read_ = 0, puts_read_ = 0, results_ = 0;
  std::deque<uint64_t> put_ends_;               // of those that are not read
  const SentChunks::Chunk* current_ = nullptr;  // a chunk whose first frames came
};

}  // namespace kvkeep
