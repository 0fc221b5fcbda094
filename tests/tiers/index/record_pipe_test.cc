#include "tiers/index/record_pipe.h"

#include <catch2/catch.hpp>
#include <thread>

namespace kvkeep {
namespace {

RecordPipe::Batch BatchOf(uint64_t sequence, uint64_t undecodable = 0) {
  IndexRecord record;
  record.sequence = CommitSequence(sequence);
  return {.records = {record}, .undecodable = undecodable};
}

}  // namespace

TEST_CASE("RecordPipe hands over every batch, in order, and then says that there are no more") {
  constexpr uint64_t kBatches = 1000;  // far more than wait at a time
  RecordPipe pipe;
  std::thread reader([&] {
    for (uint64_t i = 0; i < kBatches; ++i) pipe.Put(BatchOf(i, i % 3));
    pipe.EndOfRecords();
  });
  uint64_t taken = 0, undecodable = 0;
  while (const auto batch = pipe.Take()) {
    CHECK(batch->records.at(0).sequence.value() == taken++);
    undecodable += batch->undecodable;
  }
  reader.join();
  CHECK(taken == kBatches);
  CHECK(undecodable == kBatches - 1);  // 0 1 2, 333 times, and a 0
  CHECK_FALSE(pipe.Take().has_value());
}

TEST_CASE("RecordPipe lets the reader go when nobody takes any more") {
  RecordPipe pipe;
  uint64_t put = 0;
  std::thread reader([&] {
    while (pipe.Put(BatchOf(put))) ++put;
    pipe.EndOfRecords();
  });
  CHECK(pipe.Take().has_value());
  pipe.StopTaking();
  reader.join();
  CHECK(put >= 1);
  CHECK(put <= RecordPipe::kMaxWaiting + 1);
  CHECK_FALSE(pipe.Put(BatchOf(7)));
  CHECK_FALSE(pipe.Take().has_value());
}

}  // namespace kvkeep
