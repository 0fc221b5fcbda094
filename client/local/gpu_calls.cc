// The GPU path's calls of LocalTransport: registering memory, a put from it and a get to it.
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "client/local/gpu_call.h"
#include "client/local/local_lease.h"
#include "client/local/local_transport.h"
#include "client/local/put_reply.h"
#include "client/transport/check_call.h"
#include "client/transport/split_lease.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;

// ---------------------------------------------------------------- put

class GpuPut final : public GpuCall {
 public:
  GpuPut(What what, std::vector<GpuPutChunk> chunks, const PutOptions& options,
         Callback<PutResult> done)
      : GpuCall(std::move(what), Kind::kPutFromGpu),
        chunks_(std::move(chunks)),
        options_(options),
        done_(std::move(done)) {
    result_.chunks.resize(chunks_.size());
  }

  absl::Status Check(const NamespaceSpec& spec) {
    std::vector<Item> items;
    for (uint32_t i = 0; i < chunks_.size(); ++i) {
      const GpuPutChunk& chunk = chunks_[i];
      const absl::StatusOr<uint64_t> bytes = PayloadBytes(chunk.runs);
      std::string reason = bytes.ok() ? WhyRejected({.payload_bytes = *bytes,
                                                     .part = chunk.part,
                                                     .metadata_bytes = chunk.metadata.size()},
                                                    spec)
                                      : std::string(bytes.status().message());
      if (!reason.empty()) {
        result_.chunks[i] = {.status = PutStatus::kRejected, .message = std::move(reason)};
        continue;
      }
      items.push_back({.index = i,
                       .runs = &chunk.runs,
                       .payload_bytes = *bytes,
                       .wire_bytes = sizeof(local::PutChunk) + chunk.metadata.size()});
    }
    return Prepare(std::move(items));
  }

 private:
  void Write(const Body& body, local::MessageWriter* writer) const override {
    const auto chunks = static_cast<uint32_t>(body.items.size());
    const auto all_runs = static_cast<uint32_t>(body.runs.size());
    if (body.until_ns > 0) {
      writer->Append(local::GpuPutUntil{.ns = body.ns.bytes,
                                        .chunks = chunks,
                                        .runs = all_runs,
                                        .deadline_ns = body.until_ns});
    } else {
      writer->Append(local::GpuPutRequest{.ns = body.ns.bytes,
                                          .chunks = chunks,
                                          .runs = all_runs,
                                          .timeout_ms = body.timeout_ms});
    }
    uint32_t first_run = 0;
    for (const Item& item : body.items) {
      const GpuPutChunk& chunk = chunks_[item.index];
      const auto runs = static_cast<uint32_t>(item.runs->size());
      writer->Append(local::PutChunk{.key = chunk.key.bytes,
                                     .parent_key = chunk.parent_key.value_or(ChunkKey()).bytes,
                                     .part = chunk.part,
                                     .payload_bytes = static_cast<uint32_t>(item.payload_bytes),
                                     .tail_bytes = static_cast<uint32_t>(chunk.metadata.size()),
                                     .first_run = first_run,
                                     .runs = runs,
                                     .flags = PutFlagsOf(options_, chunk.parent_key.has_value())});
      first_run += runs;
    }
    writer->AppendAll(std::span<const local::GpuMemoryRun>(body.runs));
    for (const Item& item : body.items) writer->AppendText(chunks_[item.index].metadata);
  }

  absl::Status Read(LocalSession::Reply& reply, Items items) override {
    KVKEEP_ASSIGN_OR_RETURN(std::vector<PutOutcome> outcomes, ReadPutReply(reply, items.size()));
    for (size_t i = 0; i < items.size(); ++i) {
      const bool stored = outcomes[i].status != PutStatus::kRejected;
      if (stored) what_.regions->CountPut(items[i].payload_bytes);
      result_.chunks[items[i].index] = std::move(outcomes[i]);
    }
    return absl::OkStatus();
  }

  void Complete(absl::Status error) override {
    result_.error = std::move(error);
    std::move(done_)(PutResultOf(std::move(result_)));
  }

  const std::vector<GpuPutChunk> chunks_;
  const PutOptions options_;
  Callback<PutResult> done_;
  PutResult result_;  // each chunk's outcome is written by the reader of its answer
};

// ---------------------------------------------------------------- get

// Finds the daemon's lease for a get of a key; 0: none.
class LeaseOfKey {
 public:
  LeaseOfKey() = default;
  // FAILED_PRECONDITION: it is dead, or of another session.
  static absl::StatusOr<LeaseOfKey> Make(const Lease& lease, const LocalSessionPtr& session) {
    if (!lease.alive() || lease.state()->path() != Path::kLocal) return LeaseIsDead();
    LeaseOfKey made;
    const SplitLease* const split = lease.state()->split();
    if (split == nullptr) {
      KVKEEP_RETURN_IF_ERROR(made.Add(*lease.state(), session));
      return made;
    }
    for (const SplitLease::Slice& slice : split->slices()) {
      if (slice.lease.state() == nullptr) continue;
      KVKEEP_RETURN_IF_ERROR(made.Add(*slice.lease.state(), session));
      const std::vector<ChunkKey>& keys =
          static_cast<const LocalLease*>(slice.lease.state())->what().keys;
      for (size_t i = 0; i < slice.keys; ++i) made.by_key_.emplace(keys[i], made.last_);
    }
    return made;
  }

  // A key that none of several leases holds is got under any of them.
  uint64_t Of(const ChunkKey& key) const {
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? last_ : found->second;
  }

 private:
  absl::Status Add(const LeaseState& state, const LocalSessionPtr& session) {
    const auto& granted = static_cast<const LocalLease&>(state);
    if (granted.session() != session) return LeaseIsDead();
    last_ = granted.id();
    return absl::OkStatus();
  }

  uint64_t last_ = 0;
  absl::flat_hash_map<ChunkKey, uint64_t> by_key_;  // empty: one lease has them all
};

class GpuGet final : public GpuCall {
 public:
  GpuGet(What what, std::vector<GpuGetChunk> chunks, const GpuGetOptions& options, LeaseOfKey lease,
         Callback<GetResult> done)
      : GpuCall(std::move(what), Kind::kGetToGpu),
        chunks_(std::move(chunks)),
        transient_(options.transient),
        lease_(std::move(lease)),
        done_(std::move(done)) {
    result_.chunks.resize(chunks_.size());
  }

  absl::Status Check(const NamespaceSpec& spec) {
    std::vector<Item> items;
    for (uint32_t i = 0; i < chunks_.size(); ++i) {
      const absl::StatusOr<uint64_t> bytes = PayloadBytes(chunks_[i].runs);
      if (!bytes.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("chunks[", i, "].", bytes.status().message()));
      }
      if (chunks_[i].part >= spec.parts) {
        return absl::InvalidArgumentError(absl::StrCat("chunks[", i, "].part is ", chunks_[i].part,
                                                       "; the namespace has ", spec.parts));
      }
      items.push_back({.index = i,
                       .runs = &chunks_[i].runs,
                       .payload_bytes = *bytes,
                       .wire_bytes = sizeof(local::GpuGetChunk),
                       .lease = lease_.Of(chunks_[i].key)});
    }
    return Prepare(std::move(items));
  }

 private:
  void Write(const Body& body, local::MessageWriter* writer) const override {
    writer->Append(local::GpuGetRequest{.ns = body.ns.bytes,
                                        .lease = body.items.front().lease,
                                        .chunks = static_cast<uint32_t>(body.items.size()),
                                        .runs = static_cast<uint32_t>(body.runs.size()),
                                        .timeout_ms = body.timeout_ms,
                                        .transient = transient_});
    uint32_t first_run = 0;
    for (const Item& item : body.items) {
      const auto runs = static_cast<uint32_t>(item.runs->size());
      writer->Append(local::GpuGetChunk{.key = chunks_[item.index].key.bytes,
                                        .part = chunks_[item.index].part,
                                        .payload_bytes = static_cast<uint32_t>(item.payload_bytes),
                                        .first_run = first_run,
                                        .runs = runs});
      first_run += runs;
    }
    writer->AppendAll(std::span<const local::GpuMemoryRun>(body.runs));
  }

  absl::Status Read(LocalSession::Reply& reply, Items items) override {
    local::GpuGetReply said;
    std::vector<local::GpuGetAnswer> answers;
    if (!reply.body.Read(&said) || said.chunks != items.size() ||
        !reply.body.ReadAll(said.chunks, &answers)) {
      return absl::InternalError(
          "local: a get's reply is not about the chunks that were asked for");
    }
    absl::Status failed;
    for (const local::GpuGetAnswer& answer : answers) {
      std::span<const std::byte> text;
      if (!reply.body.ReadBytes(answer.message_bytes, &text)) return TooShort();
      if (answer.status != local::kGpuGetFailed) continue;
      failed.Update(absl::UnavailableError(
          absl::string_view(reinterpret_cast<const char*>(text.data()), text.size())));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      std::span<const std::byte> tail;
      if (!reply.body.ReadBytes(answers[i].tail_bytes, &tail)) return TooShort();
      GetOutcome& outcome = result_.chunks[items[i].index];
      outcome.status = StatusOf(answers[i].status);
      if (outcome.status != GetStatus::kHit) continue;
      outcome.payload_bytes = outcome.bytes = items[i].payload_bytes;
      outcome.metadata.assign(reinterpret_cast<const char*>(tail.data()), tail.size());
      what_.regions->CountGot(outcome.bytes);
    }
    if (!reply.body.done()) return absl::InternalError("local: a get's reply is too long");
    return failed;
  }

  static GetStatus StatusOf(uint8_t status) {
    if (status == local::kGpuGetCopied) return GetStatus::kHit;
    return status == local::kGpuGetMiss ? GetStatus::kMiss : GetStatus::kUnfinished;
  }
  static absl::Status TooShort() {
    return absl::InternalError("local: a get's reply is too short for its texts");
  }

  void Complete(absl::Status error) override {
    const bool nothing = std::all_of(
        result_.chunks.begin(), result_.chunks.end(),
        [](const GetOutcome& outcome) { return outcome.status == GetStatus::kUnfinished; });
    if (nothing && !error.ok()) return std::move(done_)(error);
    result_.error = std::move(error);
    std::move(done_)(std::move(result_));
  }

  const std::vector<GpuGetChunk> chunks_;
  const bool transient_;
  const LeaseOfKey lease_;
  Callback<GetResult> done_;
  GetResult result_;  // each chunk's outcome is written by the reader of its answer
};

}  // namespace

// ---------------------------------------------------------------- the transport's

absl::StatusOr<GpuRegion> LocalTransport::RegisterGpuMemory(GpuMemory memory, Deadline deadline) {
  KVKEEP_ASSIGN_OR_RETURN(const LocalSessionPtr session, CurrentSession());
  KVKEEP_ASSIGN_OR_RETURN(LocalGpuRegionPtr region,
                          gpu_regions_->Register(session, std::move(memory), DeadlineOf(deadline)));
  return GpuRegion(std::move(region));
}

GpuStats LocalTransport::gpu_stats() const { return gpu_regions_->stats(); }

// Registers regions that are not registered yet on a thread that may wait.
template <typename Call>
void LocalTransport::StartGpu(const std::shared_ptr<Call>& call, const NamespaceSpec& spec) {
  if (absl::Status bad = call->Check(spec); !bad.ok()) return call->Refuse(std::move(bad));
  if (call->IsBound()) return call->Send();
  RunOrPost([call] { call->BindAndSend(); });
}

void LocalTransport::PutFromGpu(Ns ns, const NamespaceSpec& spec, std::vector<GpuPutChunk> chunks,
                                const GpuPutOptions& options, Callback<PutResult> done) {
  const absl::StatusOr<Ready> ready = Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  if (options.put.checksum) {
    return std::move(done)(absl::InvalidArgumentError(
        "checksum: the bytes of a put from GPU memory never come here; the daemon makes its own"));
  }
  StartGpu(std::make_shared<GpuPut>(GpuCall::What{.session = ready->session,
                                                  .ns = ready->digest,
                                                  .deadline = DeadlineOf(options.put.deadline),
                                                  .regions = gpu_regions_,
                                                  .use = options.use},
                                    std::move(chunks), options.put, std::move(done)),
           spec);
}

void LocalTransport::GetToGpu(Ns ns, const NamespaceSpec& spec, std::vector<GpuGetChunk> chunks,
                              const GpuGetOptions& options, Callback<GetResult> done) {
  const absl::StatusOr<Ready> ready = Prepare(ns);
  if (!ready.ok()) return std::move(done)(ready.status());
  absl::StatusOr<LeaseOfKey> lease = LeaseOfKey();
  if (options.lease != nullptr) lease = LeaseOfKey::Make(*options.lease, ready->session);
  if (!lease.ok()) return std::move(done)(lease.status());
  StartGpu(std::make_shared<GpuGet>(GpuCall::What{.session = ready->session,
                                                  .ns = ready->digest,
                                                  .deadline = DeadlineOf(options.deadline),
                                                  .regions = gpu_regions_,
                                                  .use = options.use},
                                    std::move(chunks), options, *std::move(lease), std::move(done)),
           spec);
}

}  // namespace kvkeep::client
