// A bucket over HTTP, as strict as a server of S3's protocol, which can fail in several ways; and a
// daemon with the bucket as its G4.
#pragma once

#include <absl/strings/str_cat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tests/e2e/engine.h"
#include "tests/e2e/g4_place.h"
#include "tests/fakes/served_bucket.h"
#include "tiers/base/clock.h"

namespace kvkeep::e2e {

enum class Bucket : uint8_t {
  kServes,
  kRefusesConnections,  // resets each
  kHangs,               // accepts requests, answers nothing
  kAbsent,              // 404 to all
  kHalfBusy,            // 503 to every second one
  kCuts,                // cuts bodies off after half
  kFlips,               // flips a bit of each body
  kDrips,               // sends a byte each 20 ms
  kDenies,              // 403
};

// Returns whether `answer` answers a read and has a body.
inline bool HasBody(const HttpRequest& request, const ScriptedAnswer& answer) {
  return request.method == "GET" && answer.status < 300 && !answer.body.empty();
}

class BucketServer {
 public:
  std::string url() const { return server_.url("/bucket"); }
  size_t objects() const { return bucket_.objects().size(); }
  std::atomic<Bucket> state{Bucket::kServes};
  std::atomic<int> requests{0};

 private:
  bool Change(const HttpRequest& request, ScriptedAnswer& answer, ServedConnection& connection) {
    const int number = ++requests;
    switch (state) {
      case Bucket::kServes: return true;
      case Bucket::kRefusesConnections: connection.Reset(); return false;
      case Bucket::kHangs: connection.AwaitClose(); return false;
      case Bucket::kAbsent: answer = Error(404, "NoSuchKey"); return true;
      case Bucket::kHalfBusy:
        if (number % 2 == 0) answer = Error(503, "SlowDown");
        return true;
      case Bucket::kFlips:
        if (HasBody(request, answer)) answer.body[answer.body.size() * 2 / 3] ^= 4;
        return true;
      case Bucket::kDenies: answer = Error(403, "AccessDenied"); return true;
      case Bucket::kCuts:
      case Bucket::kDrips: break;
    }
    if (!HasBody(request, answer)) return true;
    connection.Send(absl::StrCat("HTTP/1.1 200 So\r\nContent-Length: ", answer.body.size(),
                                 "\r\n\r\n"));
    if (state == Bucket::kCuts) {
      connection.Send(answer.body.substr(0, answer.body.size() / 2));
    } else {
      connection.Drip("x", 20);
    }
    return false;
  }
  static ScriptedAnswer Error(int status, const std::string& code) {
    return {.status = status,
            .headers = {{"Content-Type", "application/xml"}},
            .body = absl::StrCat("<Error><Code>", code, "</Code></Error>")};
  }

  FakeS3 bucket_{RealClock(),
                 std::make_shared<const S3Keys>(S3Keys{"ID", SecretText("secret"), "", {}})};
  ScriptedServer server_{[this](ServedConnection& connection, int) {
    ServeBucket(bucket_, connection,
                [this](const HttpRequest& request, ScriptedAnswer& answer, ServedConnection& way) {
                  return Change(request, answer, way);
                });
  }};
};

// The files that daemons of one fleet need for the bucket.
class FleetFiles {
 public:
  FleetFiles() {
    WriteForOwner(path("key"), FleetKeyOf('1'));
    WriteForOwner(path("credentials"), "ID\nsecret\n");
  }
  // Returns the g4 section of a daemon's config. Without a write rate the daemon writes nothing
  // there.
  std::string Config(const BucketServer& bucket, const std::string& write_rate) const {
    return absl::StrCat("g4: {url: \"", bucket.url(), "\", credentials_file: ",
                        path("credentials"), ", admission: all, write_bytes_per_second: ",
                        write_rate, "}\nfleet: {name: t, key_file: ", path("key"), "}\n");
  }

 private:
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }

  ScratchDir dir_;
};

}  // namespace kvkeep::e2e
