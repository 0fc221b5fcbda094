// Makes the calls of a transfer, one after the other, and turns their outcomes into a status.
#include "contrib/nixl/transfer.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace kvkeep_nixl {
namespace {

constexpr uint64_t kMaxObjectBytes = uint64_t{256} << 20;  // of a chunk

// Returns NIXL's status for a code. It is never REMOTE_DISCONNECT, after which NIXL forgets the
// objects, and no transfer works any more.
nixl_status_t StatusOf(int code) {
  switch (code) {
    case KVKEEP_OK:
      return NIXL_SUCCESS;
    case KVKEEP_NOT_FOUND:
    case KVKEEP_DATA_LOSS:
      return NIXL_ERR_NOT_FOUND;
    case KVKEEP_INVALID_ARGUMENT:
      return NIXL_ERR_INVALID_PARAM;
    case KVKEEP_PERMISSION_DENIED:
    case KVKEEP_UNAUTHENTICATED:
      return NIXL_ERR_NOT_ALLOWED;
    case KVKEEP_CANCELLED:
    case KVKEEP_DEADLINE_EXCEEDED:
      return NIXL_ERR_CANCELED;
    default:
      return NIXL_ERR_BACKEND;
  }
}

std::string Said(const kvkeep_error& error) {
  return std::string(kvkeep_code_name(error.code)) + ": " + error.message;
}

}  // namespace

Transfer::~Transfer() {
  closing_ = true;  // no further call
  while (Check() == NIXL_IN_PROG) {
    kvkeep_completion completion;
    const uint32_t wait_ms = state_ == State::kHeld ? 1 : 100;
    if (kvkeep_queue_wait(queue_, &completion, 1, wait_ms) > 0) Advance(completion);
  }
}

nixl_status_t Transfer::Take(const nixl_meta_dlist_t& memory, const nixl_meta_dlist_t& objects) {
  if (memory.getType() != DRAM_SEG || objects.getType() != OBJ_SEG) return NIXL_ERR_NOT_SUPPORTED;
  if (memory.isEmpty() || memory.descCount() != objects.descCount()) return NIXL_ERR_INVALID_PARAM;
  std::unordered_map<const Object*, size_t> latest;  // chunk of an object that may still grow
  std::set<std::string> written;
  for (int i = 0; i < memory.descCount(); ++i) {
    const nixlMetaDesc &from = memory[i], &to = objects[i];
    const auto* object = static_cast<const Object*>(to.metadataP);
    const auto* owner = static_cast<const Memory*>(from.metadataP);
    if (object == nullptr || owner == nullptr || from.len == 0 || from.len != to.len) {
      return NIXL_ERR_INVALID_PARAM;
    }
    if (to.addr == 0) {
      const std::string key(reinterpret_cast<const char*>(object->key.bytes), sizeof(kvkeep_key));
      if (writes_ && !written.insert(key).second) return NIXL_ERR_INVALID_PARAM;
      latest[object] = chunks_.size();
      chunks_.push_back({.object = object});
    }
    const auto grows = latest.find(object);
    if (grows == latest.end()) return NIXL_ERR_INVALID_PARAM;
    Chunk& chunk = chunks_[grows->second];
    if (chunk.bytes != to.addr || from.len > kMaxObjectBytes - chunk.bytes) {
      return NIXL_ERR_INVALID_PARAM;
    }
    chunk.runs.push_back({reinterpret_cast<void*>(from.addr), from.len});
    chunk.bytes += from.len;
    if (owner->registered != nullptr &&
        std::find(registered_.begin(), registered_.end(), owner) == registered_.end()) {
      registered_.push_back(owner);
    }
  }
  return NIXL_SUCCESS;
}

nixl_status_t Transfer::Post() {
  if (state_ != State::kIdle) return NIXL_ERR_REPOST_ACTIVE;
  kvkeep_error error;
  if (kvkeep_queue_create(1, &queue_, &error) != KVKEEP_OK) {
    NIXL_ERROR << "a transfer cannot start: " << Said(error);
    return status_ = NIXL_ERR_BACKEND;
  }
  deadline_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(via_.deadline_ms);
  if (writes_) {
    std::vector<uint32_t> all(chunks_.size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    Put(all);
  } else {
    Get();
  }
  return state_ == State::kIdle ? status_ : NIXL_IN_PROG;
}

nixl_status_t Transfer::Check() {
  while (state_ != State::kIdle && state_ != State::kHeld) {
    kvkeep_completion completion;
    if (kvkeep_queue_poll(queue_, &completion, 1) == 0) return NIXL_IN_PROG;
    Advance(completion);
  }
  if (state_ == State::kHeld) {
    if (MemoryInUse()) return NIXL_IN_PROG;
    state_ = State::kIdle;
    (void)kvkeep_queue_destroy(queue_, nullptr);
    queue_ = nullptr;
  }
  return status_;
}

uint32_t Transfer::LeftMs() const {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::steady_clock::now());
  return static_cast<uint32_t>(std::max<int64_t>(left.count(), 1));
}

kvkeep_keys Transfer::Keys() const {
  return {.ns = via_.ns,
          .keys = keys_.data(),
          .key_count = static_cast<uint32_t>(keys_.size()),
          .part_count = 1,
          .parts = &via_.part};
}

// Returns whether the daemon may still read memory for a put of ours that it did not answer. It
// does so until the put's deadline at the latest, which is ours.
bool Transfer::MemoryInUse() const {
  if (!writes_ || status_ == NIXL_SUCCESS ||
      std::chrono::steady_clock::now() > deadline_ + std::chrono::milliseconds(1)) {
    return false;
  }
  return std::any_of(registered_.begin(), registered_.end(), [](const Memory* memory) {
    return kvkeep_memory_in_use(memory->registered) != 0;
  });
}

void Transfer::Get() {
  keys_.clear();
  destinations_.clear();
  run_counts_.clear();
  for (const Chunk& chunk : chunks_) {
    keys_.push_back(chunk.object->key);
    destinations_.insert(destinations_.end(), chunk.runs.begin(), chunk.runs.end());
    run_counts_.push_back(static_cast<uint32_t>(chunk.runs.size()));
  }
  got_.assign(chunks_.size(), {});
  const kvkeep_get_request request = {.size = sizeof request,
                                      .deadline_ms = LeftMs(),
                                      .keys = Keys(),
                                      .destinations = destinations_.data(),
                                      .outcomes = got_.data(),
                                      .chunk_count = chunks_.size(),
                                      .run_counts = run_counts_.data()};
  kvkeep_error error;
  Started(State::kGetting, kvkeep_get_async(via_.client, &request, queue_, this, &error), error);
}

void Transfer::Put(const std::vector<uint32_t>& which) {
  const bool again = state_ == State::kDeleting;
  std::vector<uint32_t> chosen = which;
  which_.swap(chosen);
  sources_.clear();
  put_.clear();
  for (const uint32_t i : which_) {
    const Chunk& chunk = chunks_[i];
    std::vector<kvkeep_const_buffer> runs;
    for (const kvkeep_buffer& run : chunk.runs) runs.push_back({run.data, run.bytes});
    sources_.push_back(std::move(runs));
    put_.push_back({.key = chunk.object->key,
                    .part = via_.part,
                    .runs = sources_.back().data(),
                    .run_count = sources_.back().size()});
  }
  put_outcomes_.assign(which_.size(), KVKEEP_PUT_UNFINISHED);
  const kvkeep_put_request request = {.size = sizeof request,
                                      .deadline_ms = LeftMs(),
                                      .ns = via_.ns,
                                      .chunks = put_.data(),
                                      .chunk_count = static_cast<uint32_t>(put_.size()),
                                      .outcomes = put_outcomes_.data()};
  kvkeep_error error;
  Started(again ? State::kPuttingAgain : State::kPutting,
          kvkeep_put_async(via_.client, &request, queue_, this, &error), error);
}

void Transfer::Delete() {
  keys_.clear();
  for (const uint32_t i : which_) keys_.push_back(chunks_[i].object->key);
  deleted_ = {.size = sizeof deleted_};
  const kvkeep_keys_request request = {
      .size = sizeof request, .deadline_ms = LeftMs(), .keys = Keys()};
  kvkeep_error error;
  Started(State::kDeleting,
          kvkeep_delete_async(via_.client, &request, &deleted_, queue_, this, &error), error);
}

void Transfer::Started(State state, int refused, const kvkeep_error& error) {
  state_ = state;
  if (refused != KVKEEP_OK) End(StatusOf(refused), Said(error));
}

void Transfer::Advance(const kvkeep_completion& completion) {
  if (completion.error.code != KVKEEP_OK) {
    return End(StatusOf(completion.error.code), Said(completion.error));
  }
  std::string why = completion.error.message;
  if (state_ == State::kGetting) {
    const nixl_status_t status = Got(&why);
    return End(status, why);
  }
  if (state_ == State::kDeleting) {
    if (closing_) return End(NIXL_ERR_CANCELED, "");
    return Put(which_);
  }
  const nixl_status_t status = WasPut(&why);
  if (status != NIXL_SUCCESS || which_.empty()) return End(status, why);
  if (closing_) return End(NIXL_ERR_CANCELED, "");
  Delete();
}

// Returns the status of the first object that is no hit. Sets `why` to what the log should say: ""
// for a miss.
nixl_status_t Transfer::Got(std::string* why) const {
  why->clear();
  for (size_t i = 0; i < got_.size(); ++i) {
    switch (got_[i].status) {
      case KVKEEP_GET_HIT:
        if (got_[i].bytes == chunks_[i].bytes && got_[i].payload_bytes == got_[i].bytes) break;
        return NIXL_ERR_MISMATCH;
      case KVKEEP_GET_TOO_SMALL:
        return NIXL_ERR_MISMATCH;
      case KVKEEP_GET_MISS:
      case KVKEEP_GET_CORRUPT:
        return NIXL_ERR_NOT_FOUND;
      default:
        *why = "an object has no room in the daemon's DRAM now";
        return NIXL_ERR_BACKEND;
    }
  }
  return NIXL_SUCCESS;
}

// Returns the status of the first object that was not stored. Leaves in which_ what has to be
// replaced. A name that is taken again after the delete has another writer, who came after us: its
// bytes stay.
nixl_status_t Transfer::WasPut(std::string* why) {
  std::vector<uint32_t> taken;
  for (size_t i = 0; i < which_.size(); ++i) {
    switch (put_outcomes_[i]) {
      case KVKEEP_PUT_STORED:
        break;
      case KVKEEP_PUT_PRESENT:
        if (via_.replace && state_ == State::kPutting && chunks_[which_[i]].object->named) {
          taken.push_back(which_[i]);
        }
        break;
      default:
        if (why->empty()) *why = "an object was not stored";
        return NIXL_ERR_BACKEND;
    }
  }
  which_.swap(taken);
  return NIXL_SUCCESS;
}

void Transfer::End(nixl_status_t status, const std::string& why) {
  status_ = status;
  state_ = State::kHeld;
  if (status == NIXL_SUCCESS) {
    via_.failing = false;
  } else if (!why.empty() && !via_.failing.exchange(true)) {
    NIXL_ERROR << "transfers fail: " << why;
  }
}

}  // namespace kvkeep_nixl
