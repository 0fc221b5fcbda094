// ObjectPlace: where images lie, a bucket or a directory that machines share, and the store that is
// opened there, with what it works with.
//
// Opening connects to nothing but a service that has a bucket's keys. It waits for the keys a
// while; keys that come later, or never, are not an error.
//
// OpenedPlace is a plain value. A caller that takes the store out of it destroys the store before
// the rest.
#pragma once

#include <absl/status/statusor.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/random.h"
#include "tiers/objects/credentials.h"
#include "tiers/objects/curl_engine.h"
#include "tiers/objects/directory_store.h"
#include "tiers/objects/key_choice.h"
#include "tiers/objects/s3_store.h"
#include "tiers/objects/s3_url.h"

namespace kvkeep {

struct ObjectPlace {
  S3UrlOptions bucket;           // unless it is a directory
  std::string directory;         // empty: it is a bucket
  std::string fleet;             // a directory must have its mark; empty: any
  std::string writer;            // owner of its new files; empty: nobody
  S3KeyOptions keys;             // of a bucket
  CurlEngineOptions http;        // likewise
  // At most so many threads share out its connections, if there are 16 for each. One takes about
  // 1 GB/s by TLS.
  uint32_t http_threads = 1;
  std::chrono::milliseconds keys_within{5000};  // how long opening waits for them
  int directory_threads = 4;     // each waits for the file system
  std::chrono::milliseconds longest_directory_request{60'000};
};

// Destroyed from the last to the first.
struct OpenedPlace {
  std::string where;  // for people: the bucket's address or the directory
  std::unique_ptr<ThreadPool> directory_pool;
  std::unique_ptr<S3Credentials> credentials;  // of a bucket; its owner calls Tick
  std::vector<const S3Store*> s3;              // of `store`, if it is a bucket's
  const DirectoryStore* shared = nullptr;      // `store`, if it is a directory's
  std::unique_ptr<ObjectStore> store;
};

// InvalidArgument names the option, NotFound the credentials that were looked for. `clock` and
// `random` outlive what is opened.
absl::StatusOr<OpenedPlace> OpenObjectPlace(const ObjectPlace& place, Clock* clock,
                                            RandomSource* random);

}  // namespace kvkeep
