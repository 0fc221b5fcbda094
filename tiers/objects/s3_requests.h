// What is sent to a bucket, signed, and what its answers say: GetObject, PutObject, DeleteObject,
// ListObjectsV2. Pure functions over requests and answers; who sends them, how often and when, is
// another's.
//
// Signed are the host and what S3 itself reads (x-amz-*); Range and conditions are not, as images
// are checked by who reads them. There is no HeadObject: it cannot tell an absent object from a
// wrong bucket. An answer is believed as far as its head and its bytes agree.
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/objects/http_engine.h"
#include "tiers/objects/s3_answer.h"
#include "tiers/objects/s3_keys.h"
#include "tiers/objects/s3_listing.h"
#include "tiers/objects/s3_url.h"
#include "tiers/objects/sigv4.h"

namespace kvkeep {

// With what and when each request is signed. `at`: of the server, where this machine's is wrong.
struct SigningContext {
  SigV4Signer* signer = nullptr;
  SharedS3Keys keys;
  UnixSeconds at;
};

struct ByteRange {
  uint64_t first = 0;
  uint64_t bytes = 0;  // above 0
};

struct GetObject {
  std::string name;
  std::optional<ByteRange> range;  // none: all of it
  std::string if_match;            // an ETag, with its quotes; empty: any version
};
struct PutObject {
  std::string name;
  std::vector<std::span<const std::byte>> body;
  std::optional<uint32_t> crc32c;  // of the body; what the server checks it by
  bool if_absent = false;
};
struct ListObjects {
  std::string prefix;  // behind the bucket's own
  std::string token;   // of the page before
};

HttpRequest MakeGet(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                    const GetObject& get);
HttpRequest MakePut(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                    const PutObject& put);
HttpRequest MakeDelete(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                       const std::string& name);
HttpRequest MakeList(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                     const ListObjects& list);

struct ObjectAnswer {
  ObjectOutcome outcome = ObjectOutcome::kBroken;
  bool connection_failed = false;  // there was none
  S3ErrorText error;
  std::string etag;                           // strong; empty: none
  std::optional<uint64_t> object_bytes;       // all of it
  std::optional<UnixSeconds> modified, date;  // Last-Modified; the server's clock
  std::optional<std::chrono::seconds> retry_after;
};

// Before a body is taken: it is the range asked for. DataLoss when it is another, or one that does
// not say what it is. All of an object is taken for a range that begins at 0.
absl::Status CheckGetHead(const std::optional<ByteRange>& range, const HttpHead& head);
// A success is one only when all bytes that its head promises came.
ObjectAnswer ReadAnswer(const ObjectQuestion& question, const HttpAnswer& answer, UnixSeconds now);

}  // namespace kvkeep
