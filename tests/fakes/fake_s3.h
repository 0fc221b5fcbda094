// FakeS3: a bucket's server without a network: it turns a request into an answer. It is strict: it
// recomputes signatures and checksums, requires the right clock, and takes a name as encoded. A
// switch exists for each way in which servers differ or fail. Thread-safe; the switches are not.
#pragma once

#include <absl/strings/string_view.h>

#include <chrono>
#include <map>
#include <string>

#include "tests/fakes/scripted_http_engine.h"
#include "tiers/base/mutex.h"
#include "tiers/objects/s3_keys.h"
#include "tiers/objects/sigv4.h"

namespace kvkeep {

class FakeS3 {
 public:
  struct Object {
    std::string body, etag;
    UnixSeconds modified;
  };

  // `keys`: the keys that must sign requests. `clock` outlives this.
  FakeS3(const Clock* clock, SharedS3Keys keys) : clock_(*clock), keys_(std::move(keys)) {}

  ScriptedAnswer Serve(const HttpRequest& request, std::string body);

  // Returns the objects of the bucket by key, prefix included.
  std::map<std::string, Object> objects() const;
  void Change(const std::string& key, const std::string& body);
  void set_keys(SharedS3Keys keys);
  void set_expired(bool expired);
  uint64_t served() const;

  // ---- switches
  std::chrono::seconds clock_ahead{0};
  bool knows_conditions = true;     // else 501 for a put with one
  bool ignores_conditions = false;  // takes and forgets them
  bool ignores_ranges = false;      // 200 and all of it
  std::string lifecycle =           // its rules
      "<LifecycleConfiguration><Rule><Filter/><Status>Enabled</Status>"
      "<Expiration><Days>7</Days></Expiration></Rule></LifecycleConfiguration>";
  bool knows_settings = true;       // else it answers with a list of the bucket, as Swift does
  size_t page = 1000;               // of a list

 private:
  struct Parsed {
    std::string method, key, path, query;
    HttpHeaders headers;
    std::string body;
  };
  ScriptedAnswer Refuse(int status, absl::string_view code) const;
  std::optional<ScriptedAnswer> CheckSignature(const Parsed& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ScriptedAnswer Get(const Parsed& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ScriptedAnswer Put(const Parsed& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ScriptedAnswer List(const Parsed& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Store(const std::string& key, std::string body) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  UnixSeconds Now() const;

  const Clock& clock_;
  mutable Mutex mu_;
  SharedS3Keys keys_ ABSL_GUARDED_BY(mu_);
  bool expired_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, Object> objects_ ABSL_GUARDED_BY(mu_);
  uint64_t versions_ ABSL_GUARDED_BY(mu_) = 0, served_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep
