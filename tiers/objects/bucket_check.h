// CheckBucket: tries what a bucket's server does, on objects of its own, which it puts, races for,
// cuts off, reads, overwrites and deletes. For people who are about to trust a server, and for
// tests.
//
// It asks the server itself, with no breaker, window or retry in between, so that each line is one
// answer. It blocks for seconds. Its objects lie below "check/" and are deleted at the end, as far
// as the server lets it.
#pragma once

#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/random.h"
#include "tiers/objects/http_engine.h"
#include "tiers/objects/s3_keys.h"
#include "tiers/objects/s3_url.h"

namespace kvkeep {

struct BucketFinding {
  enum class Verdict : uint8_t {
    kGood,
    kNote,  // works, and is worth knowing
    kBad,   // images would be lost or mixed, or nothing works
  };
  std::string what;  // "a body that is cut off, with its checksum"
  std::string says;  // "404 NoSuchKey afterwards"
  Verdict verdict = Verdict::kGood;
  std::string means;  // for kNote and kBad: what follows, or what to do
};

struct BucketCheckOptions {
  uint64_t cut_bytes = 64 * kMiB;  // of a body that is cut off while it is sent
  std::chrono::milliseconds cut_after{20};
  size_t racers = 12, timed_reads = 20;
  std::chrono::milliseconds each_within{20'000};
  std::chrono::seconds lifetime{0};  // g4.lifetime of the nodes; 0: not told
};

// Returns findings in the order they were made. Ends at the first bad ones if nothing works at all.
// All pointers outlive the call.
std::vector<BucketFinding> CheckBucket(const S3Urls& urls, const SharedS3Keys& keys,
                                       const BucketCheckOptions& options, HttpEngine* engine,
                                       Clock* clock, RandomSource* random);

// Asks one question that changes nothing: reads an absent object. Tells whether the bucket's server
// answers and takes these keys, and its clock. Blocks for `each_within` at most.
std::vector<BucketFinding> AskBucket(const S3Urls& urls, const SharedS3Keys& keys,
                                     const BucketCheckOptions& options, HttpEngine* engine,
                                     Clock* clock, RandomSource* random);

// Returns whether a small answer took about as long as Linux holds an ACK back (TCP_DELACK_MIN, 40
// ms): then the server sends by Nagle's algorithm, and each small request pays for it.
bool WaitsForAcks(MonotonicTime answered);

}  // namespace kvkeep
