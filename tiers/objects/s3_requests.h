// Makes signed requests to a bucket and reads their answers: GetObject, PutObject, DeleteObject,
// ListObjectsV2. Pure functions over requests and answers. How often and when requests are sent is
// not decided here.
//
// The host and the headers that S3 itself reads (x-amz-*) are signed. Range and conditions are not,
// as readers check images. There is no HeadObject: it cannot tell an absent object from a wrong
// bucket. An answer is trusted as far as its head and its bytes agree.
#pragma once

#include <absl/status/status.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/objects/http_engine.h"
#include "tiers/objects/object_store.h"
#include "tiers/objects/s3_answer.h"
#include "tiers/objects/s3_keys.h"
#include "tiers/objects/s3_listing.h"
#include "tiers/objects/s3_url.h"
#include "tiers/objects/sigv4.h"

namespace kvkeep {

// How each request is signed. `at`: the server's time, where this machine's is wrong.
struct SigningContext {
  SigV4Signer* signer = nullptr;
  SharedS3Keys keys;
  UnixSeconds at;
};

HttpRequest MakeGet(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                    const GetObject& get);
HttpRequest MakePut(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                    const PutObject& put);
HttpRequest MakeDelete(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                       const std::string& name);
HttpRequest MakeList(const S3Urls& urls, EndpointNumber endpoint, const SigningContext& signing,
                     const ListObjects& list);

// Asks for a setting of the bucket: {"lifecycle", ""}, {"versioning", ""}.
HttpRequest MakeBucketQuery(const S3Urls& urls, EndpointNumber endpoint,
                            const SigningContext& signing, const UriQuery& query);

struct S3Answer {
  ObjectOutcome outcome = ObjectOutcome::kBroken;
  bool connection_failed = false;  // there was none
  bool slow = false;               // a body that moved was late
  ObjectError error;
  ObjectHead head;                  // its ETag is strong
  std::optional<std::chrono::seconds> retry_after;
};

// Checks, before the body is taken, that it is the range asked for. DataLoss if it is another range
// or an unnamed one. A whole object is accepted for a range that begins at 0.
absl::Status CheckGetHead(const std::optional<ByteRange>& range, const HttpHead& head);
// Reads the object's properties from the head of such an answer.
ObjectHead ReadObjectHead(const HttpHead& head);
// Reads an answer. A success counts only if all bytes that its head promises came.
S3Answer ReadAnswer(const ObjectQuestion& question, const HttpAnswer& answer, UnixSeconds now);

}  // namespace kvkeep
