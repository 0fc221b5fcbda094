#include "tests/fakes/memory_object_store.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/bytes.h"
#include "tiers/base/check.h"
#include "tiers/base/crc32c.h"

namespace kvkeep {

using enum ObjectOutcome;

struct MemoryObjectStore::Request {
  enum class Kind : uint8_t { kGet, kPut, kDelete, kList };
  Kind kind = Kind::kGet;
  ObjectCall call;
  GetObject get;  // it has a name and deadline like any request
  PutObject put;
  ListObjects list;
  ObjectSink* sink = nullptr;
  Done done;
  ListDone list_done;
  bool cancelled = false;
  ObjectAnswer answer;
  ObjectListing page;
  std::string body;  // still to be given
  bool cut = false;
};

void MemoryObjects::Publish(const std::string& name, std::string body, UnixSeconds modified) {
  Shared& is = now[name];
  if (is != nullptr) before[name] = is;
  is = std::make_shared<const Version>(
      Version{std::move(body), absl::StrCat("\"m", ++versions, "\""), modified});
}

void MemoryObjects::LandLate(size_t index) {
  const auto [name, version] = late[index];
  late.erase(late.begin() + static_cast<ptrdiff_t>(index));
  Publish(name, version->body, version->modified);
}

MemoryObjectStore::MemoryObjectStore(MemoryObjects* objects, ManualExecutor* executor,
                                     const Clock* clock, uint64_t seed,
                                     const ObjectFaults& faults)
    : objects_(*objects), executor_(*executor), clock_(*clock), random_(seed), faults_(faults) {}

MemoryObjectStore::~MemoryObjectStore() {
  while (!requests_.empty()) Answer(*requests_.begin()->second, kCancelled);
}

bool MemoryObjectStore::Happens(double chance) {
  const bool happens = chance > 0 && random_.Chance(chance);
  injected_ += happens;
  return happens;
}

ObjectCall MemoryObjectStore::Begin(std::unique_ptr<Request> request, Step step) {
  const ObjectCall call(++last_call_);
  request->call = call;
  Request& begun = *request;
  requests_.emplace(call, std::move(request));
  most_at_once = std::max(most_at_once, requests_.size());
  Later(begun, step);
  return call;
}

void MemoryObjectStore::Later(const Request& request, Step step, int turns) {
  if (turns < 0) turns = random_.Chance(faults_.delay) ? static_cast<int>(random_.Below(50)) : 0;
  executor_.Post([this, alive = std::weak_ptr<bool>(alive_), call = request.call, step, turns] {
    if (!alive.expired()) Run(call, step, turns);
  });
}

void MemoryObjectStore::Run(ObjectCall call, Step step, int turns) {
  const auto at = requests_.find(call);
  if (at == requests_.end()) return;
  Request& request = *at->second;
  if (request.cancelled) return Answer(request, kCancelled);
  if (clock_.Now() >= request.get.deadline) return Answer(request, kLate);
  if (Happens(faults_.stuck)) return stuck_.push_back(call);
  if (turns > 0) return Later(request, step, turns - 1);
  (this->*step)(request);
}

void MemoryObjectStore::Answer(Request& answered, ObjectOutcome outcome) {
  const auto at = requests_.find(answered.call);
  const std::unique_ptr<Request> request = std::move(at->second);
  requests_.erase(at);
  request->answer.outcome = outcome;
  request->answer.attempts = 1;
  if (request->list_done) {
    if (outcome != kOk) request->page = {};
    return std::move(request->list_done)(std::move(request->answer), std::move(request->page));
  }
  std::move(request->done)(std::move(request->answer));
}

void MemoryObjectStore::Cancel(ObjectCall call) {
  const auto at = requests_.find(call);
  if (at == requests_.end()) return;
  at->second->cancelled = true;
  Later(*at->second, &MemoryObjectStore::StepBody, 0);
}

void MemoryObjectStore::Tick() {
  std::erase_if(stuck_, [this](ObjectCall call) {
    const auto at = requests_.find(call);
    if (at == requests_.end()) return true;
    if (clock_.Now() < at->second->get.deadline) return false;
    Later(*at->second, &MemoryObjectStore::StepBody, 0);
    return true;
  });
}

void MemoryObjectStore::Abandon() {
  const UnixSeconds now(static_cast<int64_t>(clock_.UnixMicros() / 1'000'000));
  for (auto& [call, request] : requests_) {
    const bool done = random_.Chance(0.3);
    if (request->kind == Request::Kind::kDelete && done) objects_.now.erase(request->get.name);
    if (request->kind != Request::Kind::kPut) continue;
    std::string body;
    for (const auto run : request->put.body) absl::StrAppend(&body, AsText(run));
    if (done) {
      objects_.Publish(request->get.name, std::move(body), now);
    } else if (random_.Chance(0.5)) {
      objects_.late.emplace_back(request->get.name,
                                 std::make_shared<const MemoryObjects::Version>(
                                     MemoryObjects::Version{std::move(body), "", now}));
    }
  }
  requests_.clear();
}

bool MemoryObjectStore::FailsFirst(Request& request) {
  for (const auto& [chance, outcome] :
       {std::pair(faults_.broken, kBroken), std::pair(faults_.throttled, kThrottled),
        std::pair(faults_.misconfigured, kMisconfigured), std::pair(faults_.late, kLate)}) {
    if (!Happens(chance)) continue;
    Answer(request, outcome);
    return true;
  }
  return false;
}

// ---- get

ObjectCall MemoryObjectStore::Get(GetObject get, ObjectSink* sink, Done done) {
  ++gets;
  got.push_back(get);
  auto request = std::make_unique<Request>();
  request->get = std::move(get);
  request->sink = sink;
  request->done = std::move(done);
  return Begin(std::move(request), &MemoryObjectStore::StepGet);
}

void MemoryObjectStore::StepGet(Request& request) {
  if (FailsFirst(request)) return;
  const std::string& name = request.get.name;
  if (Happens(faults_.gone)) objects_.now.erase(name);
  if (Happens(faults_.hides_all)) hidden_for_ = random_.Below(50);
  const auto at = objects_.now.find(name);
  if (at == objects_.now.end()) return Answer(request, kAbsent);
  if (refused.contains(name)) return Answer(request, kRefused);
  if (hidden_for_ > 0) {
    --hidden_for_;
    return Answer(request, kAbsent);
  }
  MemoryObjects::Shared is = at->second;
  if (objects_.before.contains(name) && Happens(faults_.old_version)) is = objects_.before[name];
  if (!request.get.if_match.empty() && request.get.if_match != is->etag) {
    return Answer(request, kChanged);
  }
  request.answer.head = {is->etag, is->body.size(), is->modified, date};
  ByteRange range = request.get.range.value_or(ByteRange{0, is->body.size()});
  if (request.get.range.has_value() && range.first >= is->body.size()) {
    return Answer(request, kShort);
  }
  range.bytes = std::min(range.bytes, is->body.size() - range.first);
  if (Happens(faults_.other_range)) range.first = random_.Below(is->body.size() - range.bytes + 1);
  request.body = is->body.substr(range.first, range.bytes);
  if (!request.body.empty() && Happens(faults_.flipped)) {
    request.body[random_.Below(request.body.size())] ^= 0x10;
  }
  if (!request.body.empty() && Happens(faults_.body_cut)) {
    request.cut = true;
    request.body.resize(random_.Below(request.body.size()));
  }
  if (const absl::Status said = request.sink->Begin(request.answer.head); !said.ok()) {
    request.answer.error.message = std::string(said.message());
    return Answer(request, kCancelled);
  }
  Later(request, &MemoryObjectStore::StepBody);
}

// In a few parts, of any size.
void MemoryObjectStore::StepBody(Request& request) {
  const size_t left = request.body.size() - request.answer.given;
  if (left == 0) return Answer(request, request.cut ? kBroken : kOk);
  const size_t bytes = random_.Chance(0.5) ? left : random_.Between(1, left);
  const auto part = AsBytes(request.body).subspan(request.answer.given, bytes);
  request.answer.given += bytes;
  if (const absl::Status said = request.sink->Take(part); !said.ok()) {
    request.answer.error.message = std::string(said.message());
    return Answer(request, kCancelled);
  }
  Later(request, &MemoryObjectStore::StepBody);
}

// ---- put, delete

ObjectCall MemoryObjectStore::Put(PutObject put, Done done) {
  ++puts;
  auto request = std::make_unique<Request>();
  request->kind = Request::Kind::kPut;
  request->get.name = put.name;
  request->get.deadline = put.deadline;
  request->put = std::move(put);
  request->done = std::move(done);
  return Begin(std::move(request), &MemoryObjectStore::StepPut);
}

void MemoryObjectStore::StepPut(Request& request) {
  if (FailsFirst(request)) return;
  if (Happens(faults_.full)) return Answer(request, kFull);
  const std::string& name = request.put.name;
  const bool there = objects_.now.contains(name);
  if (there && request.put.if_absent && !Happens(faults_.ignores_if_absent)) {
    return Answer(request, kExists);
  }
  std::string body;
  for (const auto run : request.put.body) absl::StrAppend(&body, AsText(run));
  if (request.put.crc32c.has_value() && Crc32c(AsBytes(body)) != *request.put.crc32c) {
    request.answer.error.code = "BadDigest";
    return Answer(request, kBroken);
  }
  const bool half = Happens(faults_.half_published);
  if (half) body.resize(body.size() / 2);
  objects_.Publish(name, std::move(body),
                   UnixSeconds(static_cast<int64_t>(clock_.UnixMicros() / 1'000'000)));
  request.answer.head.etag = objects_.now[name]->etag;
  Answer(request, half || Happens(faults_.answer_lost) ? kBroken : kOk);
}

ObjectCall MemoryObjectStore::Delete(DeleteObject deletion, Done done) {
  ++deletes;
  auto request = std::make_unique<Request>();
  request->kind = Request::Kind::kDelete;
  request->get.name = std::move(deletion.name);
  request->get.deadline = deletion.deadline;
  request->done = std::move(done);
  return Begin(std::move(request), &MemoryObjectStore::StepDelete);
}

void MemoryObjectStore::StepDelete(Request& request) {
  if (FailsFirst(request)) return;
  objects_.now.erase(request.get.name);
  Answer(request, Happens(faults_.answer_lost) ? kBroken : kOk);
}

// ---- list

ObjectCall MemoryObjectStore::List(ListObjects list, ListDone done) {
  ++lists;
  auto request = std::make_unique<Request>();
  request->kind = Request::Kind::kList;
  request->get.deadline = list.deadline;
  request->list = std::move(list);
  request->list_done = std::move(done);
  return Begin(std::move(request), &MemoryObjectStore::StepList);
}

void MemoryObjectStore::StepList(Request& request) {
  if (FailsFirst(request)) return;
  ObjectListing& page = request.page;
  for (auto at = objects_.now.upper_bound(request.list.token); at != objects_.now.end(); ++at) {
    if (!absl::StartsWith(at->first, request.list.prefix)) continue;
    if (page.objects.size() == ObjectListing::kMaxObjects) {
      page.next_token = page.objects.back().name;
      break;
    }
    page.objects.push_back({at->first, at->second->body.size(), at->second->modified});
  }
  Answer(request, kOk);
}

}  // namespace kvkeep
