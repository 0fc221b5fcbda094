#include "tools/compare/cold_reads.h"

#include <absl/strings/str_cat.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "client/client.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tools/bench/connect.h"
#include "tools/bench/content.h"
#include "tools/bench/cpu_time.h"
#include "tools/bench/operation.h"

namespace kvkeep::compare {
namespace {

using bench::Json;
using bench::Measured;

constexpr std::chrono::milliseconds kBurstPatience{300'000};

// How many bytes of a chunk, all of them looked at, are not what its key says.
uint64_t WrongIn(uint64_t seed, const ChunkKey& key, uint64_t size, const client::ChunkView& view) {
  uint64_t wrong = 0, at = 0;
  for (const std::span<const std::byte> run : view.runs) {
    wrong += bench::CountWrong(seed, key, run, at);
    at += run.size();
  }
  return wrong + (size - std::min(size, at));  // what is missing is as wrong as can be
}

// In the child.
class Reader {
 public:
  Reader(const ColdReadsOptions& options, uint32_t number, ColdReads::BurstIsOver* burst_is_over)
      : options_(options),
        burst_is_over_(*burst_is_over),
        begin_(options.chunks * number / options.clients),
        end_(options.chunks * (number + 1) / options.clients),
        at_once_(std::max<uint64_t>(options.held_bytes / options.clients / options.size, 1)),
        next_(begin_) {
    context_.seed = options.target.seed;
  }

  absl::StatusOr<Json> Answer(const Json& command) {
    const std::string what = command.at("do");
    if (what == "connect") return Connect();
    if (what == "get") return Get(command.at("seconds"));
    return Compare();
  }

 private:
  struct Held {
    ChunkKey key;
    client::Acquired got;
    double asked_at;
  };

  absl::StatusOr<Json> Connect() {
    KVKEEP_ASSIGN_OR_RETURN(client_, bench::ConnectTo(options_.target, "cold reads"));
    KVKEEP_ASSIGN_OR_RETURN(ns_, client_->OpenNamespace(bench::NamespaceOf(options_.target)));
    return Json::object();
  }

  absl::StatusOr<Json> Get(double seconds) {
    Measured measured;
    const double begin = bench::WallSeconds(), cpu = bench::ProcessCpuSeconds();
    double now = begin;
    while (true) {
      while (asked_.size() < ColdReads::kAskedAtOnce && !burst_is_over_) {
        if (now - begin >= seconds || held_.size() + asked_.size() >= at_once_) {
          burst_is_over_ = true;
        } else {
          KVKEEP_RETURN_IF_ERROR(AskForNext());
        }
      }
      if (asked_.empty()) break;
      KVKEEP_RETURN_IF_ERROR(asked_.front().got.WaitAll(bench::kCallDeadline));
      now = bench::WallSeconds();
      measured.latency.Record(static_cast<uint64_t>((now - asked_.front().asked_at) * 1e9));
      ++measured.ops;
      held_.push_back(std::move(asked_.front()));
      asked_.pop_front();
    }
    measured.seconds = now - begin;
    measured.client_cpu_seconds = bench::ProcessCpuSeconds() - cpu;
    measured.chunks = measured.ops;
    measured.bytes = measured.ops * options_.size;
    return bench::ToWire(measured);
  }

  absl::Status AskForNext() {
    const double asked_at = bench::WallSeconds();
    const std::vector<ChunkKey> keys = bench::LoadedKeys(context_, options_.size, next_, 1);
    next_ = next_ + 1 < end_ ? next_ + 1 : begin_;
    KVKEEP_ASSIGN_OR_RETURN(client::Acquired got,
                            client_->Acquire(ns_, keys, {.deadline = bench::kCallDeadline}));
    if (got.chunks.size() != 1 || got.chunks[0].payload_bytes != options_.size) {
      return absl::NotFoundError("a chunk is not there any more");
    }
    asked_.push_back({keys[0], std::move(got), asked_at});
    return absl::OkStatus();
  }

  absl::StatusOr<Json> Compare() {
    Measured measured;
    for (const Held& held : held_) {
      measured.wrong_bytes +=
          WrongIn(options_.target.seed, held.key, options_.size, held.got.chunks[0]);
      measured.verified_bytes += options_.size;
      // What was looked at may have been other bytes: this promised nothing any more.
      if (!held.got.valid()) return absl::FailedPreconditionError("a lease was revoked");
    }
    held_.clear();
    return bench::ToWire(measured);
  }

  const ColdReadsOptions options_;
  ColdReads::BurstIsOver& burst_is_over_;
  const uint64_t begin_, end_, at_once_;
  uint64_t next_;
  bench::ClientContext context_;
  std::unique_ptr<client::Client> client_;
  client::Namespace ns_;
  std::deque<Held> asked_;  // not all there yet, in order
  std::vector<Held> held_;
};

}  // namespace

absl::Status ColdReadsOptions::Validate() const {
  if (clients == 0 || size == 0) return absl::InvalidArgumentError("cold reads: of nothing");
  if (chunks < clients) return absl::InvalidArgumentError("cold reads: fewer chunks than clients");
  if (burst_seconds <= 0) return absl::InvalidArgumentError("cold reads: a burst of no time");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ColdReads>> ColdReads::Start(const ColdReadsOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  void* const shared =
      mmap(nullptr, sizeof(BurstIsOver), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return absl::ErrnoToStatus(errno, "cold reads: mmap");
  std::unique_ptr<ColdReads> reads(new ColdReads(options, new (shared) BurstIsOver(false)));
  for (uint32_t i = 0; i < options.clients; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(
        reads->clients_.emplace_back(),
        bench::ChildProcess::Fork(
            absl::StrCat("reader ", i), [&]() -> bench::ChildProcess::Handler {
              auto reader = std::make_shared<Reader>(options, i, reads->burst_is_over_.get());
              return [reader](const Json& command) { return reader->Answer(command); };
            }));
  }
  KVKEEP_RETURN_IF_ERROR(reads->AskAll({{"do", "connect"}}).status());
  return reads;
}

void ColdReads::Unmap::operator()(BurstIsOver* shared) const {
  KVKEEP_CHECK(munmap(shared, sizeof(BurstIsOver)) == 0);
}

std::vector<int> ColdReads::pids() const {
  std::vector<int> pids;
  for (const auto& client : clients_) pids.push_back(client->pid());
  return pids;
}

absl::StatusOr<std::vector<Json>> ColdReads::AskAll(const Json& command) {
  for (auto& client : clients_) KVKEEP_RETURN_IF_ERROR(client->Send(command));
  std::vector<Json> answers;
  for (auto& client : clients_) {
    KVKEEP_ASSIGN_OR_RETURN(answers.emplace_back(), client->Receive(kBurstPatience));
  }
  return answers;
}

absl::StatusOr<Measured> ColdReads::Run(double seconds) {
  Measured all;
  while (all.seconds < seconds) {
    const double left = std::min(options_.burst_seconds, seconds - all.seconds);
    *burst_is_over_ = false;
    const double begin = bench::WallSeconds();
    KVKEEP_ASSIGN_OR_RETURN(const std::vector<Json> gets,
                            AskAll({{"do", "get"}, {"seconds", left}}));
    const double took = bench::WallSeconds() - begin;
    KVKEEP_ASSIGN_OR_RETURN(const std::vector<Json> compared, AskAll({{"do", "compare"}}));
    Measured burst;
    for (const Json& one : gets) burst.Add(bench::FromWire(one), /*side_by_side=*/true);
    for (const Json& one : compared) burst.Add(bench::FromWire(one), /*side_by_side=*/true);
    burst.seconds = took;  // until the last chunk has come, and its client has said so
    all.Add(burst, /*side_by_side=*/false);
  }
  return all;
}

}  // namespace kvkeep::compare
