#include "tests/crash/load.h"

#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tiers/base/check.h"

namespace kvkeep::crash {
namespace {

using client::GetStatus;
using client::PutStatus;
using std::chrono::steady_clock;

constexpr client::Deadline kDeadline{60'000};  // of every call: none may take this long
constexpr auto kConfirmPatience = std::chrono::seconds(10);
constexpr uint32_t kLeastAsked = 100;  // before a chunk is called lost

}  // namespace

Load::Load(const LoadOptions& options, Shared* shared)
    : options_(options), shared_(shared), random_(options.seed), present_(options.keys) {
  auto connected = client::Client::Connect({.endpoint = options.endpoint,
                                            .client_name = absl::StrCat("load ", options.client),
                                            .default_deadline = kDeadline,
                                            .backoff_max = std::chrono::milliseconds(100),
                                            .path = options.path});
  KVKEEP_CHECK(connected.ok());
  client_ = *std::move(connected);
  auto ns = client_->OpenNamespace({.model = "crash", .tokens_per_chunk = 256});
  KVKEEP_CHECK(ns.ok());
  ns_ = *ns;
}

template <typename Call>
auto Load::Timed(Call call) -> decltype(call()) {
  const auto begin = steady_clock::now();
  auto result = call();
  const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begin);
  mine().slowest_us = std::max<uint64_t>(mine().slowest_us, took.count());
  if (!result.ok()) NoteFailure(result.status());
  return result;
}

void Load::NoteFailure(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    return Fail(mine().hung, absl::StrCat("a call hung: ", status.ToString()));
  }
  ++mine().failed_calls;
  last_failure_ = status.ToString();
}

void Load::Fail(Count& what, const std::string& text) {
  ++what;
  auto& first = mine().first_failure;
  if (first[0] == '\0') text.copy(first.data(), first.size() - 1);
}

// ---------------------------------------------------------------- reading

Load::Seen Load::Get(const KeyName& name, const client::Lease* lease, uint32_t index_in_lease) {
  const ChunkKey key = name.key();
  const auto got = Timed([&] {
    client::GetOptions options{.lease = lease, .first_key = index_in_lease};
    options.allocate = [this](size_t, uint64_t bytes) {
      buffer_.resize(bytes);
      return std::span(buffer_);
    };
    return client_->Get(ns_, absl::MakeSpan(&key, 1), std::move(options));
  });
  ++mine().gets;
  if (!got.ok()) return {};
  if (!got->error.ok()) {
    NoteFailure(got->error);
    return {};
  }
  const client::GetOutcome& outcome = got->chunks[0];
  if (outcome.status == GetStatus::kMiss) return {Seen::What::kMiss};
  if (outcome.status == GetStatus::kCorrupt && !shared_->tears) {
    Fail(mine().wrong, absl::StrCat("damaged: key ", name.client, "/", name.number));
  }
  if (outcome.status != GetStatus::kHit) return {};
  ++mine().hits;
  const auto version = VersionOf(name, std::span(buffer_).first(outcome.payload_bytes));
  if (!version.has_value()) {
    Fail(mine().wrong, absl::StrCat("bytes of no version: key ", name.client, "/", name.number));
    return {};
  }
  return {Seen::What::kVersion, *version};
}

void Load::Judge(uint32_t key, const Seen& seen) {
  KeyState& state = State(key);
  const auto at = [&] {
    return absl::StrCat(": key ", options_.client, "/", key, ", attempted ", state.attempted.load(),
                        ", exact ", state.exact.load(), ", kept ", state.kept.load(), ", durable ",
                        state.durable.load(), ", dead ", state.dead.load(),
                        shared_->phase == Phase::kCheck ? ", in the check" : ", under load",
                        shared_->power_cut ? " after a power cut" : "", tried_);
  };
  if (seen.what == Seen::What::kVersion) {
    const uint32_t exact = state.exact;
    const bool right = exact != 0 ? seen.version == exact
                                  : seen.version > state.dead && seen.version <= state.attempted;
    if (!right) Fail(mine().wrong, absl::StrCat("version ", seen.version, at()));
    present_[key] = true;
  } else if (seen.what == Seen::What::kMiss && !shared_->disk_gone) {
    if (state.kept != 0 && shared_->keeps) Fail(mine().lost, absl::StrCat("lost", at()));
    state.exact = state.kept = state.durable = 0;
    present_[key] = false;
  }
}

void Load::Read(uint32_t key) { Judge(key, Get(Name(key), nullptr, 0)); }

void Load::ReadOther() {
  const KeyName name{Random(options_.clients), Random(options_.keys)};
  if (name.client == options_.client) return;
  KeyState& state = shared_->keys[name.client][name.number];
  ++state.readers;
  if (state.deleting == 0) {
    ++mine().cross_reads;
    const uint32_t dead = state.dead;
    const Seen seen = Get(name, nullptr, 0);
    if (seen.what == Seen::What::kVersion &&
        (seen.version <= dead || seen.version > state.attempted)) {
      Fail(mine().wrong, absl::StrCat("version ", seen.version, " of another's key ", name.client,
                                      "/", name.number, ", dead ", dead));
    }
  }
  --state.readers;
}

void Load::LookUpAll() {
  std::vector<ChunkKey> keys;
  for (uint32_t key = 0; key < options_.keys; ++key) keys.push_back(Name(key).key());
  const auto found = Timed([&] { return client_->Lookup(ns_, keys); });
  ++mine().lookups;
  if (!found.ok()) return;
  for (uint32_t key = 0; key < options_.keys; ++key) {
    KeyState& state = State(key);
    if (found->in_g3(key) && state.exact != 0) state.kept = state.exact.load();
  }
}

void Load::LeaseSome(uint32_t first) {
  std::vector<ChunkKey> keys;
  const uint32_t count = std::min(4u, options_.keys - first);
  for (uint32_t i = 0; i < count; ++i) keys.push_back(Name(first + i).key());
  const auto found =
      Timed([&] { return client_->Lookup(ns_, keys, {.lease = client::LeaseMode::kLeadingRun}); });
  ++mine().lookups;
  if (!found.ok()) return;
  for (uint32_t i = 0; i < found->leased_keys; ++i) {
    Judge(first + i, Get(Name(first + i), &found->lease, i));
  }
}

void Load::AcquireSome(uint32_t first) {
  std::vector<ChunkKey> keys;
  const uint32_t count = std::min(4u, options_.keys - first);
  for (uint32_t i = 0; i < count; ++i) keys.push_back(Name(first + i).key());
  const auto acquired = Timed([&] { return client_->Acquire(ns_, keys, {.all_present = true}); });
  ++mine().acquires;
  if (!acquired.ok()) return;
  for (size_t i = 0; i < acquired->chunks.size(); ++i) {
    const client::ChunkView& view = acquired->chunks[i];
    const uint32_t key = first + view.chunk;
    const size_t pieces = (view.payload_bytes + (1 << 20) - 1) >> 20;
    const absl::Status ready = acquired->WaitPieces(i, pieces, kDeadline);
    if (ready.code() == absl::StatusCode::kDeadlineExceeded) NoteFailure(ready);
    std::vector<std::byte> bytes;
    for (const auto& run : view.runs) bytes.insert(bytes.end(), run.begin(), run.end());
    if (!ready.ok() || !acquired->valid()) continue;
    const auto version = VersionOf(Name(key), bytes);
    if (version.has_value()) {
      ++mine().hits;
      Judge(key, {Seen::What::kVersion, *version});
    } else {
      Fail(mine().wrong, absl::StrCat("in place, bytes of no version: key ", key));
    }
  }
}

// ---------------------------------------------------------------- changing

void Load::PutSome(uint32_t first, bool durable) {
  std::vector<uint32_t> keys, versions, dead_before;
  for (uint32_t key = first; key < options_.keys && keys.size() < 3; ++key) {
    if (!present_[key]) keys.push_back(key);
  }
  for (uint32_t key = 0; key < options_.keys; ++key) dead_before.push_back(State(key).dead);
  std::vector<std::vector<std::byte>> payloads;
  for (const uint32_t key : keys) {
    KeyState& state = State(key);
    state.exact = state.kept = state.durable = 0;
    versions.push_back(++state.attempted);
    payloads.push_back(PayloadOf(Name(key), versions.back()));
  }
  std::vector<client::PutChunk> puts(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    puts[i] = {.key = Name(keys[i]).key(), .runs = {payloads[i]}};
    if (keys[i] > 0 && Random(2) == 0) puts[i].parent_key = Name(keys[i] - 1).key();
  }
  const auto put = Timed([&] { return client_->Put(ns_, std::move(puts), {.durable = durable}); });
  ++(durable ? mine().durable_puts : mine().puts);
  if (!put.ok()) return;
  if (!put->error.ok()) NoteFailure(put->error);
  bool sure = false;
  for (size_t i = 0; i < keys.size(); ++i) {
    NotePut(keys[i], versions[i], put->chunks[i].status, durable);
    sure |= durable && put->chunks[i].status == PutStatus::kStored;
  }
  for (uint32_t key = 0; sure && key < options_.keys; ++key) {
    KeyState& state = State(key);
    state.sure_dead = std::max(state.sure_dead.load(), dead_before[key]);
  }
}

void Load::NotePut(uint32_t key, uint32_t version, PutStatus status, bool durable) {
  KeyState& state = State(key);
  if (status == PutStatus::kStored) {
    state.dead = version - 1;
    state.exact = version;
    if (durable) state.sure_dead = version - 1;
    if (durable) state.durable = state.kept = version;
  }
  if (status == PutStatus::kStored || status == PutStatus::kPresent) present_[key] = true;
}

void Load::PutAgainDurable(uint32_t key) {
  KeyState& state = State(key);
  const uint32_t version = state.exact;
  if (version == 0) return;
  const std::vector<std::byte> payload = PayloadOf(Name(key), version);
  std::vector<client::PutChunk> puts(1);
  puts[0] = {.key = Name(key).key(), .runs = {payload}};
  const auto put = Timed([&] { return client_->Put(ns_, std::move(puts), {.durable = true}); });
  ++mine().durable_puts;
  if (!put.ok()) return;
  if (!put->error.ok()) return NoteFailure(put->error);
  const PutStatus status = put->chunks[0].status;
  if (status == PutStatus::kPresent || status == PutStatus::kStored) {
    state.durable = state.kept = version;
  }
}

void Load::DeleteOne(uint32_t key) {
  KeyState& state = State(key);
  state.deleting = 1;
  if (state.readers == 0) {
    state.exact = state.kept = state.durable = 0;
    const ChunkKey name = Name(key).key();
    const auto deleted = Timed([&] { return client_->Delete(ns_, absl::MakeSpan(&name, 1)); });
    ++mine().deletes;
    if (deleted.ok()) {
      state.dead = state.attempted.load();
      present_[key] = false;
    }
  }
  state.deleting = 0;
}

// ---------------------------------------------------------------- the two things it does

void Load::Step() {
  const uint32_t key = Random(options_.keys);
  const uint32_t dice = Random(100);
  if (!present_[key]) return PutSome(key, dice < 30);
  if (dice < 40) return Read(key);
  if (dice < 50) return ReadOther();
  if (dice < 58) return LookUpAll();
  if (dice < 66) return LeaseSome(key);
  if (dice < 74 && client_->path().path == client::Path::kLocal) return AcquireSome(key);
  if (dice < 80) return PutAgainDurable(key);
  DeleteOne(key);
}

void Load::CheckKey(uint32_t key) {
  KeyState& state = State(key);
  if (shared_->power_cut) state.kept = state.durable.load();
  state.dead = state.sure_dead.load();
  state.exact = 0;
  const uint32_t kept = shared_->keeps ? state.kept.load() : 0;
  // A record that is not sure yet is promised only once its header was read, which happens soon. On
  // a machine that stood still that long, the daemon was asked often all the same.
  Seen seen;
  uint32_t asked = 0, misses = 0;
  const auto began = steady_clock::now();
  do {
    seen = Get(Name(key), nullptr, 0);
    if (Interrupted()) return;
    ++asked;
    misses += seen.what == Seen::What::kMiss;
    if (kept == 0 || seen.what == Seen::What::kVersion) break;
    usleep(2'000);  // for the daemon
  } while (asked < kLeastAsked || steady_clock::now() < began + kConfirmPatience);
  ++mine().checked;
  state.exact = kept;
  if (kept != 0 && seen.what != Seen::What::kVersion) {
    seen.what = Seen::What::kMiss;
    const std::chrono::duration<double> passed = steady_clock::now() - began;
    tried_ = absl::StrCat(", asked for ", asked, " times in ", passed.count(), " s: ", misses,
                          " misses, last failure '", last_failure_, "'");
  }
  Judge(key, seen);
  mine().survived += kept != 0 && seen.version == kept;
}

void Load::Check(uint32_t turn) {
  checking_ = turn;
  const auto give_up = steady_clock::now() + kDeadline;
  while (!client_->WaitConnected(std::chrono::milliseconds(100))) {
    if (Interrupted()) return;
    if (steady_clock::now() > give_up) return Fail(mine().hung, "not connected again");
  }
  for (uint32_t key = 0; key < options_.keys && !Interrupted(); ++key) CheckKey(key);
}

}  // namespace kvkeep::crash
