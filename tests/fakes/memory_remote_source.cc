#include "tests/fakes/memory_remote_source.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tiers/base/check.h"

namespace kvkeep {

MemoryRemoteSource::MemoryRemoteSource(MemoryBucket* bucket, ManualExecutor* executor,
                                       uint64_t seed, const RemoteFaults& faults)
    : bucket_(*bucket), executor_(*executor), random_(seed), faults_(faults) {
  place_.bytes[0] = 0xf4;
  mac_key_[0] = std::byte{0xf4};  // the fleet's, not the node's
}

bool MemoryRemoteSource::Happens(double chance) const {
  const bool happens = chance > 0 && random_.Chance(chance);
  injected_ += happens;
  return happens;
}

void MemoryRemoteSource::Later(Executor::Task task, int turns) {
  if (turns < 0) turns = random_.Chance(faults_.delay) ? static_cast<int>(random_.Below(50)) : 0;
  if (turns == 0) return executor_.Post(std::move(task));
  executor_.Post([this, task = std::move(task), turns]() mutable {
    Later(std::move(task), turns - 1);
  });
}

void MemoryRemoteSource::Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
                              std::function<void(Found)> done) {
  find_deadline = deadline;
  last_wanted = wanted;
  Later([this, ids = std::move(ids), done = std::move(done)] {
    Found found;
    for (const ChunkId& id : ids) {
      const auto at = bucket_.find(id);
      found.emplace_back();
      if (at == bucket_.end() || Happens(faults_.hides)) continue;
      const absl::StatusOr<ImageHeader> header =
          DecodeHeader(ConstHeaderPage(at->second->data(), kHeaderBytes), mac_key_);
      if (!header.ok()) continue;
      found.back() = header->identity.shape;
      if (Happens(faults_.finds_other)) {
        found.back()->payload_bytes = static_cast<uint32_t>(random_.Between(1, 300'000));
      }
    }
    Later([found = std::move(found), done] { done(found); });
  });
}

std::chrono::seconds MemoryRemoteSource::AgeOf(const ChunkId& id) const {
  if (clock_ == nullptr) return std::chrono::seconds(0);
  const auto written = written_->find(id);
  if (written == written_->end()) return kAgeless;
  return std::chrono::duration_cast<std::chrono::seconds>(clock_->Now() - written->second);
}

void MemoryRemoteSource::Age(const ChunkId& id,
                             std::function<void(absl::StatusOr<std::chrono::seconds>)> done) {
  KVKEEP_CHECK(!only_peers);
  ++ages_asked;
  Later([this, id, done = std::move(done)] {
    absl::StatusOr<std::chrono::seconds> age = AgeOf(id);
    if (!bucket_.contains(id) || Happens(faults_.hides)) age = absl::NotFoundError("404");
    if (Happens(faults_.read_error)) age = absl::UnavailableError("503");
    Later([done, age] { done(age); });
  });
}

absl::Status MemoryRemoteSource::Copy(Reading& reading, uint64_t at, std::span<std::byte> to) {
  if (Happens(faults_.read_error)) return absl::UnavailableError("503");
  const auto there = bucket_.find(reading.request.id);
  if (there == bucket_.end()) return absl::NotFoundError("it is not there any more");
  if (reading.image == nullptr) reading.image = there->second;
  MemoryBucket::mapped_type image = reading.image;
  if (Happens(faults_.other_read)) {
    const auto steps = static_cast<ptrdiff_t>(random_.Below(bucket_.size()));
    image = std::next(bucket_.begin(), steps)->second;
  }
  if (at + to.size() > image->size()) return absl::DataLossError("it ends too soon");
  std::memcpy(to.data(), image->data() + at, to.size());
  if (Happens(faults_.corrupt_read)) to[random_.Below(to.size())] ^= std::byte{0x10};
  return absl::OkStatus();
}

void MemoryRemoteSource::ReadPart(const std::shared_ptr<Reading>& reading, size_t piece,
                                  uint64_t at, uint64_t bytes) {
  absl::Status status;
  for (uint64_t done = 0; status.ok() && done < bytes;) {
    const std::span<std::byte> run = reading->request.memory(at + done, bytes - done);
    status = Copy(*reading, at + done, run);
    done += run.size();
  }
  reading->request.piece_done(piece, bytes, std::move(status));
}

// Header and pieces come in any order, some pieces in two parts.
void MemoryRemoteSource::Read(ReadRequest request) {
  read_deadline = request.deadline;
  const auto reading = std::make_shared<Reading>(Reading{std::move(request), nullptr});
  Later([this, reading] {
    if (reading->request.age != nullptr) reading->request.age(AgeOf(reading->request.id));
    reading->request.header_done(Copy(*reading, 0, reading->request.header));
  });
  const ImageShape& shape = reading->request.shape;
  for (size_t piece = 0; piece < shape.pieces(); ++piece) {
    const uint64_t begin = shape.piece_begin(piece), end = shape.piece_end(piece);
    uint64_t middle = end;
    if (random_.Chance(0.3)) middle = begin + random_.Between(1, end - begin);
    Later([=, this] { ReadPart(reading, piece, begin, middle - begin); });
    if (middle < end) Later([=, this] { ReadPart(reading, piece, middle, end - middle); });
  }
}

void MemoryRemoteSource::Write(WriteRequest request) {
  const auto shared = std::make_shared<WriteRequest>(std::move(request));
  KVKEEP_CHECK(!only_peers);
  ++(shared->replace ? replacing_writes : writes);
  Later([this, shared] {
    if (Happens(faults_.write_error)) {
      return Later([shared] { shared->done(absl::UnavailableError("503 SlowDown")); });
    }
    if (keeps_existing && !shared->replace && bucket_.contains(shared->id)) {
      return Later([shared] { shared->done(absl::AlreadyExistsError("412")); });
    }
    std::vector<std::byte> image(shared->header.begin(), shared->header.end());
    const uint64_t end = shared->shape.blocks().value() * kBlockBytes;
    while (image.size() < end) {
      const std::span<std::byte> run = shared->memory(image.size(), end - image.size());
      image.insert(image.end(), run.begin(), run.end());
    }
    if (Happens(faults_.half_written)) image.resize(kHeaderBytes + (end - kHeaderBytes) / 2);
    bucket_[shared->id] = std::make_shared<const std::vector<std::byte>>(std::move(image));
    if (written_ != nullptr) (*written_)[shared->id] = clock_->Now();
    const bool lost = Happens(faults_.answer_lost);
    Later([shared, lost] {
      shared->done(lost ? absl::UnavailableError("the connection broke") : absl::OkStatus());
    });
  });
}

void MemoryRemoteSource::Remove(const ChunkId& id, std::function<void(absl::Status)> done) {
  KVKEEP_CHECK(!only_peers);
  Later([this, id, done = std::move(done)] {
    if (Happens(faults_.remove_error)) {
      return Later([done] { done(absl::UnavailableError("503")); });
    }
    bucket_.erase(id);
    const bool lost = Happens(faults_.answer_lost);
    Later([done, lost] {
      done(lost ? absl::UnavailableError("the connection broke") : absl::OkStatus());
    });
  });
}

}  // namespace kvkeep
