#include "tiers/objects/bucket_check.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include <algorithm>
#include <memory>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/crc32c.h"
#include "tiers/base/mutex.h"
#include "tiers/objects/bucket_lifecycle.h"
#include "tiers/objects/s3_requests.h"

namespace kvkeep {
namespace {

using Verdict = BucketFinding::Verdict;

class CheckSink final : public HttpSink {
 public:
  absl::Status Begin(const HttpHead&) override { return absl::OkStatus(); }
  absl::Status Take(std::span<const std::byte> bytes) override {
    absl::StrAppend(&text, AsText(bytes));
    return absl::OkStatus();
  }
  std::string text;
};

// Waits for answers that are on their way.
class Awaited {
 public:
  explicit Awaited(size_t count) : answers_(count), left_(count) {}
  HttpEngine::Done Into(size_t number) {
    return [this, number](HttpAnswer answer) {
      MutexLock lock(&mu_);
      KVKEEP_CHECK(number < answers_.size() && left_ > 0);
      answers_[number] = std::move(answer);
      --left_;
      changed_.NotifyAll();
    };
  }
  std::vector<HttpAnswer> Await() {
    MutexLock lock(&mu_);
    while (left_ > 0) changed_.Wait(&mu_);
    return answers_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<HttpAnswer> answers_ ABSL_GUARDED_BY(mu_);
  size_t left_ ABSL_GUARDED_BY(mu_);
};

// One answer, as judged and as shown.
struct Seen {
  S3Answer answer;
  HttpAnswer http;
  std::string text;  // of a body

  std::string Shown() const {
    if (!http.status.ok() && http.head.status == 0) return std::string(http.status.message());
    const bool elsewhere = http.head.status >= 300 && http.head.status < 400;
    return absl::StrCat(http.head.status, answer.error.code.empty() ? "" : " ", answer.error.code,
                        elsewhere ? ": " : "", elsewhere ? answer.error.message : "");
  }
  bool Is(ObjectOutcome outcome) const { return answer.outcome == outcome; }
};

class BucketChecker {
 public:
  BucketChecker(const S3Urls& urls, const SharedS3Keys& keys, const BucketCheckOptions& options,
                HttpEngine* engine, Clock* clock, RandomSource* random)
      : urls_(urls), keys_(keys), options_(options), engine_(*engine), clock_(*clock),
        signer_(urls.region()),
        run_(absl::StrCat("check/", absl::Hex(random->NextU64(), absl::kZeroPad16), "/")) {
    KVKEEP_CHECK(options.racers > 0 && options.timed_reads > 0);
  }

  std::vector<BucketFinding> Run() {
    if (!CheckRoundTrip()) return std::move(findings_);
    CheckAbsent();
    CheckConditions();
    CheckChecksum();
    CheckCut(true);
    CheckCut(false);
    CheckVersions();
    CheckTimes();
    CheckKeys();
    CheckSettings();
    CheckDeletes();
    return std::move(findings_);
  }
  std::vector<BucketFinding> Ask() {
    FindClock(CheckAbsent());
    return std::move(findings_);
  }

 private:
  SigningContext Signing() const {
    return {&signer_, keys_,
            UnixSeconds(static_cast<int64_t>(clock_.UnixMicros() / 1'000'000))};
  }
  std::string Name(absl::string_view name) const { return absl::StrCat(run_, name); }

  Seen Send(const ObjectQuestion& question, HttpRequest request) {
    CheckSink sink;
    if (request.method == "GET") request.sink = &sink;
    request.deadline = std::min<MonotonicTime>(request.deadline,
                                               clock_.Now() + options_.each_within);
    Awaited awaited(1);
    engine_.Start(std::move(request), awaited.Into(0));
    Seen seen;
    seen.http = awaited.Await()[0];
    seen.answer = ReadAnswer(question, seen.http, Signing().at);
    seen.text = std::move(sink.text);
    return seen;
  }
  Seen Put(const std::string& name, const std::string& body, bool if_absent = false,
           uint32_t crc_off = 0) {
    made_.push_back(name);
    PutObject put{.name = name, .body = {AsBytes(body)},
                  .crc32c = Crc32c(AsBytes(body)) + crc_off, .if_absent = if_absent};
    return Send({ObjectVerb::kPut, if_absent}, MakePut(urls_, endpoint_, Signing(), put));
  }
  Seen Get(const std::string& name, std::optional<ByteRange> range = std::nullopt,
           const std::string& if_match = "") {
    return Send({ObjectVerb::kGet, !if_match.empty()},
                MakeGet(urls_, endpoint_, Signing(), {name, range, if_match}));
  }
  void Find(std::string what, std::string says, Verdict verdict, std::string means = "") {
    if (verdict == Verdict::kGood) means.clear();
    findings_.push_back({std::move(what), std::move(says), verdict, std::move(means)});
  }

  // Returns false if nothing works.
  bool CheckRoundTrip() {
    const std::string body(10'000, 'k');
    const Seen put = Put(Name("a"), body);
    const bool stored = put.Is(ObjectOutcome::kOk);
    Find("put an object", put.Shown(), stored ? Verdict::kGood : Verdict::kBad,
         std::string(AdviceFor(put.answer.error.code)));
    FindClock(put);
    if (!stored) return false;
    const Seen got = Get(Name("a"));
    const bool same = got.Is(ObjectOutcome::kOk) && got.text == body;
    Find("get it back", got.Shown(), same ? Verdict::kGood : Verdict::kBad,
         got.Is(ObjectOutcome::kOk) ? "other bytes came than were put"
                                    : std::string(AdviceFor(got.answer.error.code)));
    const Seen part = Get(Name("a"), ByteRange{100, 50});
    const bool is_part = part.http.head.status == 206 && part.text == body.substr(100, 50);
    Find("get a range of it", part.Shown(), is_part ? Verdict::kGood : Verdict::kBad,
         "images are read in ranges");
    return same;
  }

  void FindClock(const Seen& seen) {
    if (!seen.answer.head.answered.has_value()) return;
    const int64_t skew = seen.answer.head.answered->value() - Signing().at.value();
    Find("its clock, beside this machine's", absl::StrFormat("%+d s", skew),
         std::abs(skew) > 60 ? Verdict::kNote : Verdict::kGood,
         "requests are refused above 15 minutes; over TLS kvkeep goes by the server's clock then");
  }

  Seen CheckAbsent() {
    Seen absent = Get(Name("absent"), ByteRange{0, 4096});
    const bool told = absent.Is(ObjectOutcome::kAbsent);
    std::string means(AdviceFor(absent.answer.error.code));
    if (absent.http.head.status == 0) {
      means = "nobody answers there: look at its name, DNS, route, firewall and certificate";
    } else if (absent.answer.error.code == "AccessDenied") {
      means = "the keys may not list the bucket, so what is absent cannot be told from denied";
    } else if (means.empty()) {
      means = "only 404 NoSuchKey says that an object is absent";
    }
    Find("get an object that is not there", absent.Shown(), told ? Verdict::kGood : Verdict::kBad,
         std::move(means));
    return absent;
  }

  void CheckConditions() {
    const Seen second = Put(Name("a"), "another", true);
    const bool refused = second.Is(ObjectOutcome::kExists);
    Find("put what is there, If-None-Match: *", second.Shown(),
         refused ? Verdict::kGood : Verdict::kNote,
         "uploads of what is there already are not saved");
    if (!refused) return;
    std::vector<HttpAnswer> answers;
    Awaited awaited(options_.racers);
    const std::string body(1000, 'r');
    made_.push_back(Name("race"));
    for (size_t i = 0; i < options_.racers; ++i) {
      HttpRequest put = MakePut(urls_, endpoint_, Signing(),
                                {.name = Name("race"), .body = {AsBytes(body)},
                                 .if_absent = true});
      put.deadline = clock_.Now() + options_.each_within;
      engine_.Start(std::move(put), awaited.Into(i));
    }
    size_t stored = 0;
    for (const HttpAnswer& answer : awaited.Await()) stored += answer.head.status == 200;
    Find(absl::StrCat("the same, ", options_.racers, " at once, not there"),
         absl::StrCat(stored, " stored"), stored == 1 ? Verdict::kGood : Verdict::kNote,
         "harmless: what lies under one name is interchangeable");
  }

  void CheckChecksum() {
    const Seen wrong = Put(Name("wrong"), "hello", false, 1);
    const bool refused = !wrong.Is(ObjectOutcome::kOk);
    Find("a body that is not what its crc32c says", wrong.Shown(),
         refused ? Verdict::kGood : Verdict::kNote,
         "bodies are not checked on their way in; images are when they are read");
  }

  // libcurl closes the connection in the middle of the body.
  void CheckCut(bool checksum) {
    const std::string name = Name(checksum ? "cut" : "cut-unchecked");
    made_.push_back(name);
    const std::string body(options_.cut_bytes, 'c');
    PutObject put{.name = name, .body = {AsBytes(body)}};
    if (checksum) put.crc32c = Crc32c(AsBytes(body));
    HttpRequest request = MakePut(urls_, endpoint_, Signing(), put);
    request.deadline = clock_.Now() + options_.cut_after;
    const Seen cut = Send({ObjectVerb::kPut, false}, std::move(request));
    const std::string what = checksum ? "a body that is cut off, with its checksum"
                                      : "a body that is cut off, without one";
    if (cut.http.status.ok()) {
      return Find(what, "not tried: it was sent in time", Verdict::kGood);
    }
    const Seen after = Get(name, ByteRange{0, 4096});
    const bool published = after.Is(ObjectOutcome::kOk);
    Find(what, absl::StrCat(after.Shown(), " afterwards"),
         !published ? Verdict::kGood : checksum ? Verdict::kBad : Verdict::kNote,
         checksum ? "half an object is published: update the server"
                  : "half an object is published; kvkeep sends a checksum with each");
  }

  void CheckVersions() {
    const Seen first = Get(Name("a"));
    const Seen changed = Put(Name("a"), std::string(10'000, 'n'));
    const Seen part = Get(Name("a"), ByteRange{0, 100}, first.answer.head.etag);
    const bool refused = part.Is(ObjectOutcome::kChanged);
    Find("get a range of a version that was overwritten, If-Match",
         first.answer.head.etag.empty() ? "no ETag" : part.Shown(),
         refused && changed.Is(ObjectOutcome::kOk) ? Verdict::kGood : Verdict::kNote,
         "images above 12 MiB may be read in parts of two versions; that is seen, and a miss");
  }

  void CheckTimes() {
    for (const bool present : {true, false}) {
      std::vector<MonotonicTime> times;
      for (size_t i = 0; i < options_.timed_reads; ++i) {
        const MonotonicTime begin = clock_.Now();
        Get(Name(present ? "a" : "absent"), ByteRange{0, 4096});
        times.push_back(clock_.Now() - begin);
      }
      std::sort(times.begin(), times.end());
      const MonotonicTime median = times[times.size() / 2];
      Find(present ? "get 4 KiB of what is there, median" : "of what is not there, median",
           absl::StrFormat("%.2f ms", std::chrono::duration<double, std::milli>(median).count()),
           WaitsForAcks(median) ? Verdict::kNote : Verdict::kGood,
           "unless it is that far away, it holds small answers back until this machine's ACK: turn "
           "TCP_NODELAY on there (radosgw: `tcp_nodelay=1` in rgw_frontends)");
    }
  }

  void CheckKeys() {
    const SharedS3Keys own = std::exchange(
        keys_, std::make_shared<const S3Keys>(S3Keys{"KVKEEPCHECKUNKNOWN00", SecretText("none"),
                                                     "", {}}));
    const Seen unknown = Get(Name("a"));
    keys_ = own;
    const bool refused =
        unknown.Is(ObjectOutcome::kDenied) || unknown.Is(ObjectOutcome::kMisconfigured);
    Find("keys that it does not know", unknown.Shown(), refused ? Verdict::kGood : Verdict::kBad,
         "anybody may read this bucket");
  }

  void CheckSettings() {
    const auto ask = [&](const char* about) {
      return Send({ObjectVerb::kList, false},
                  MakeBucketQuery(urls_, endpoint_, Signing(), {{about, ""}}));
    };
    // A server that does not know a setting may list the bucket instead, with 200.
    const auto answers = [](const Seen& seen, const char* document) {
      return seen.Is(ObjectOutcome::kOk) && absl::StrContains(seen.text, document);
    };
    const Seen lifecycle = ask("lifecycle");
    // All images lie below this (tiers/remote/object_name.h).
    const auto expiry = lifecycle.Is(ObjectOutcome::kOk)
                            ? ReadExpiry(lifecycle.text, absl::StrCat(urls_.prefix(), "1/"))
                            : std::nullopt;
    JudgeExpiry(lifecycle, expiry);
    if (expiry.has_value()) JudgeTransitions(*expiry);
    const Seen versioning = ask("versioning");
    const bool versions = answers(versioning, "<VersioningConfiguration") &&
                          absl::StrContains(versioning.text, "Enabled");
    Find("old versions", versions ? "kept" : "not kept",
         versions ? Verdict::kNote : Verdict::kGood, "each overwritten or deleted image is billed");
    const Seen lock = ask("object-lock");
    const bool locked = answers(lock, "<ObjectLockConfiguration") &&
                        absl::StrContains(lock.text, "Enabled");
    Find("object lock", locked ? "on" : "off", locked ? Verdict::kBad : Verdict::kGood,
         "bad images could not be deleted: use another bucket");
  }

  // Compares what expires with g4.lifetime, which the nodes are told.
  void JudgeExpiry(const Seen& lifecycle, const std::optional<BucketExpiry>& expiry) {
    const char* const what = "rules that expire objects";
    const bool told = options_.lifetime.count() > 0;
    if (expiry.has_value() && expiry->unclear) {
      return Find(what, "some that are not understood", Verdict::kNote,
                  "compare g4.lifetime with them: it is the age at which the first images expire");
    }
    if (!expiry.has_value() || !expiry->days.has_value()) {
      const bool says_so = expiry.has_value() || lifecycle.http.head.status == 404;
      return Find(what, expiry.has_value() ? "none for images" : lifecycle.Shown(), Verdict::kNote,
                  absl::StrCat(says_so ? "nothing expires there" : "it does not say what expires",
                               ": set a rule by age, or let `kvkeep g4 sweep` delete what is old"));
    }
    const uint32_t days = *expiry->days;
    const auto expire = std::chrono::hours(24) * days;
    Verdict verdict = Verdict::kGood;
    std::string means;
    if (told && options_.lifetime > expire) {
      verdict = Verdict::kBad;
      means = absl::StrCat("images go before they are written anew: g4.lifetime: ", days, "d");
    } else if (told && options_.lifetime < expire) {
      verdict = Verdict::kNote;
      means = absl::StrCat("images are written anew sooner than they must: g4.lifetime: ", days,
                           "d");
    }
    const std::string so = told ? "" : absl::StrCat(", so g4.lifetime: ", days, "d");
    Find(what, absl::StrCat("after ", days, " days", so), verdict, std::move(means));
  }

  void JudgeTransitions(const BucketExpiry& expiry) {
    const bool moves = !expiry.moved_to.empty();
    Find("rules that move objects to another class",
         moves ? absl::StrCat("to ", expiry.moved_to) : "none for images",
         expiry.archived ? Verdict::kBad : moves ? Verdict::kNote : Verdict::kGood,
         expiry.archived ? "what is archived is refused: each such image is a miss, and stands in "
                           "the way of its own repair; take the rule away"
                         : "images are read from there at that class's times and prices");
  }

  void CheckDeletes() {
    bool all = true;
    std::string says;
    std::sort(made_.begin(), made_.end());
    made_.erase(std::unique(made_.begin(), made_.end()), made_.end());
    for (const std::string& name : made_) {
      const Seen deleted = Send({ObjectVerb::kDelete, false},
                                MakeDelete(urls_, endpoint_, Signing(), name));
      all = all && deleted.Is(ObjectOutcome::kOk);
      says = deleted.Shown();
    }
    const Seen after = Get(Name("a"));
    const bool gone = all && after.Is(ObjectOutcome::kAbsent);
    Find("delete all of them", absl::StrCat(says, ", then ", after.Shown()),
         gone ? Verdict::kGood : Verdict::kNote,
         absl::StrCat("objects are left below ", urls_.prefix(), run_));
  }

  const S3Urls& urls_;
  SharedS3Keys keys_;
  const BucketCheckOptions options_;
  HttpEngine& engine_;
  Clock& clock_;
  mutable SigV4Signer signer_;
  const std::string run_;
  const EndpointNumber endpoint_{0};
  std::vector<std::string> made_;
  std::vector<BucketFinding> findings_;
};

}  // namespace

bool WaitsForAcks(MonotonicTime answered) {
  return answered >= std::chrono::milliseconds(40) && answered < std::chrono::milliseconds(50);
}

std::vector<BucketFinding> CheckBucket(const S3Urls& urls, const SharedS3Keys& keys,
                                       const BucketCheckOptions& options, HttpEngine* engine,
                                       Clock* clock, RandomSource* random) {
  return BucketChecker(urls, keys, options, engine, clock, random).Run();
}

std::vector<BucketFinding> AskBucket(const S3Urls& urls, const SharedS3Keys& keys,
                                     const BucketCheckOptions& options, HttpEngine* engine,
                                     Clock* clock, RandomSource* random) {
  return BucketChecker(urls, keys, options, engine, clock, random).Ask();
}

}  // namespace kvkeep
