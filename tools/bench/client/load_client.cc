#include "tools/bench/client/load_client.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/payload_malloc.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/client/content.h"
#include "tools/bench/client/driver.h"
#include "tools/bench/client/gpu_memory.h"
#include "tools/bench/client/payload_pool.h"

namespace kvkeep::bench {
namespace {

constexpr std::chrono::seconds kRoomPatience{10};  // of a load
constexpr uint64_t kLoadCallBytes = 32 * kMiB;
constexpr uint64_t kLoadCallChunks = 4096;
constexpr double kOneCallSeconds = 1e-9;  // a slice that ends with its first call

// Tunes this process's malloc like an engine's, and connects. Unavailable; FailedPrecondition if
// the path local is not available.
absl::StatusOr<std::unique_ptr<client::Client>> ConnectTo(const ClientTarget& target,
                                                          std::string client_name) {
  client::TuneMallocForPayloads();
  const client::PathChoice choice = target.path == "grpc"    ? client::PathChoice::kGrpc
                                    : target.path == "local" ? client::PathChoice::kLocal
                                                             : client::PathChoice::kAuto;
  KVKEEP_ASSIGN_OR_RETURN(auto connected,
                          client::Client::Connect({.endpoint = target.endpoint,
                                                   .client_name = std::move(client_name),
                                                   .default_deadline = kCallDeadline,
                                                   .path = choice,
                                                   .local_socket = target.local_socket}));
  if (!connected->connected()) return connected->GetServerInfo().status();
  return connected;
}

// Returns the namespace that clients of the same seed share.
client::NamespaceSpec NamespaceOf(const ClientTarget& target) {
  return {.model = absl::StrCat("bench ", target.seed), .dtype = "bytes", .tokens_per_chunk = 256};
}

class LoadClient {
 public:
  absl::StatusOr<Json> Connect(const ClientTarget& target, Commands* commands) {
    if (client_ != nullptr) return absl::FailedPreconditionError("this client is connected");
    target_ = target;
    context_.seed = target.seed;
    context_.number = target.number;
    context_.clients = target.clients;
    KVKEEP_ASSIGN_OR_RETURN(auto connected,
                            ConnectTo(target_, absl::StrCat("bench ", target.number)));
    KVKEEP_ASSIGN_OR_RETURN(context_.ns, connected->OpenNamespace(NamespaceOf(target_)));
    client_ = std::move(connected);
    context_.client = client_.get();
    const client::PathInfo path = client_->path();
    context_.local = path.path == client::Path::kLocal;
    AddPatternCommands(&context_, commands);
    return Json{{"path", std::string(client::PathName(path.path))}, {"why", path.why}};
  }
  bool connected() const { return client_ != nullptr; }

  absl::StatusOr<Json> Load(const Json& command) {
    const uint64_t first = command.at("first"), count = command.at("count");
    const uint64_t size = command.at("size");
    if (load_pool_ == nullptr || load_size_ != size) {
      load_pool_.reset();
      load_pool_ = std::make_unique<PayloadPool>(LoadedPayloads(size) * size);
      load_pool_->Fill(context_.seed, size);
      load_size_ = size;
    }
    const uint64_t per_call = std::clamp<uint64_t>(kLoadCallBytes / size, 1, kLoadCallChunks);
    for (uint64_t at = first; at < first + count; at += per_call) {
      const uint64_t chunks = std::min(per_call, first + count - at);
      KVKEEP_RETURN_IF_ERROR(LoadBatch(at, chunks, size, command.at("no_g3")));
    }
    return Json::object();
  }

  // Makes the operations with their buffers, and keeps them.
  absl::StatusOr<Json> Prepare(const Json& command) {
    const CaseSpec spec = FieldsFromJson<CaseSpec>(command.at("case"));
    KVKEEP_RETURN_IF_ERROR(spec.Validate());
    Prepared one = {.verify_all = spec.verify_all};
    if (spec.run_bytes > 0) {
      KVKEEP_ASSIGN_OR_RETURN(one.operations.emplace_back(), MakeGpuOperation(&context_, spec));
    } else {
      if (spec.verb == Verb::kPut || spec.verb == Verb::kMixed) {
        KVKEEP_RETURN_IF_ERROR(FillPool(spec.size));
      }
      for (uint32_t i = 0; i < spec.depth; ++i) {
        one.operations.push_back(MakeOperation(&context_, spec));
      }
    }
    prepared_.push_back(std::move(one));
    return Json{{"prepared", prepared_.size() - 1}};
  }

  absl::StatusOr<Json> Run(const Json& command) {
    const Prepared& prepared = prepared_.at(command.at("prepared").get<size_t>());
    DriveOptions options = {.seconds = command.at("seconds"),
                            .max_ops = command.at("max_ops"),
                            .verify = command.at("verify")};
    if (prepared.verify_all) {
      options.slice_seconds = kOneCallSeconds;
      options.verify_bytes_per_slice = UINT64_MAX;
    }
    return FieldsToJson(Drive(prepared.operations, options));
  }

  absl::StatusOr<Json> OpenGpu(const Json& command) {
    const std::optional<GpuWay> way = GpuWayOf(command.at("path"));
    if (!way) return absl::InvalidArgumentError("path: none of a GPU");
    KVKEEP_ASSIGN_OR_RETURN(gpu_,
                            GpuMemory::Open(client_.get(), {.way = *way,
                                                            .call_bytes = command.at("call_bytes"),
                                                            .mount_dir = command.at("mount_dir")}));
    context_.gpu = gpu_.get();
    return Json{{"device", gpu_->device()}, {"daemon_bytes", gpu_->daemon_bytes()}};
  }

  absl::StatusOr<Json> CopyPlain(const Json& command) {
    if (gpu_ == nullptr) return absl::FailedPreconditionError("the GPU is not open");
    const bool to_gpu = command.at("to_gpu");
    return FieldsToJson(gpu_->CopyPlain(to_gpu ? GpuCopyWay::kToGpu : GpuCopyWay::kToHost,
                                        command.at("bytes"), command.at("seconds")));
  }

 private:
  struct Prepared {
    std::vector<std::unique_ptr<Operation>> operations;
    bool verify_all = false;
  };

  // Waits for room: a slow disk may have all of a small G2 dirty.
  absl::Status LoadBatch(uint64_t first, uint64_t count, uint64_t size, bool no_g3) {
    const auto until = std::chrono::steady_clock::now() + kRoomPatience;
    while (true) {
      absl::Status loaded = TryLoadBatch(first, count, size, no_g3);
      const bool full = absl::IsResourceExhausted(loaded);
      if (!full || std::chrono::steady_clock::now() > until) return loaded;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the daemon's writes
    }
  }

  absl::Status TryLoadBatch(uint64_t first, uint64_t count, uint64_t size, bool no_g3) {
    const std::vector<ChunkKey> keys = LoadedKeys(context_, size, first, count);
    std::vector<client::PutChunk> chunks(count);
    for (uint64_t i = 0; i < count; ++i) {
      chunks[i].key = keys[i];
      chunks[i].runs = {load_pool_->payload(PayloadOf(keys[i]), size)};
    }
    KVKEEP_ASSIGN_OR_RETURN(
        const client::PutResult result,
        client_->Put(context_.ns, std::move(chunks), {.no_g3 = no_g3, .deadline = kCallDeadline}));
    for (const client::PutOutcome& outcome : result.chunks) {
      if (outcome.status != client::PutStatus::kStored &&
          outcome.status != client::PutStatus::kPresent) {
        return absl::ResourceExhaustedError(absl::StrCat("load: ", outcome.message));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FillPool(uint64_t size) {
    if (pool_ == nullptr) {
      const uint64_t bytes = std::max(target_.pool_bytes, size);
      if (context_.local) {
        KVKEEP_ASSIGN_OR_RETURN(pool_, PayloadPool::Staging(client_.get(), bytes));
      } else {
        pool_ = std::make_unique<PayloadPool>(bytes);
      }
    }
    pool_->Fill(context_.seed, size);
    context_.pool = pool_.get();
    return absl::OkStatus();
  }

  ClientTarget target_;
  ClientContext context_;
  std::unique_ptr<client::Client> client_;
  std::unique_ptr<PayloadPool> pool_, load_pool_;
  uint64_t load_size_ = 0;
  std::vector<Prepared> prepared_;
  std::unique_ptr<GpuMemory> gpu_;
};

}  // namespace

void AddLoadCommands(Commands* commands) {
  const auto client = std::make_shared<LoadClient>();
  commands->Add("connect", [client, commands](const Json& command) {
    return client->Connect(FieldsFromJson<ClientTarget>(command), commands);
  });
  const std::pair<const char*, absl::StatusOr<Json> (LoadClient::*)(const Json&)> others[] = {
      {"load", &LoadClient::Load}, {"prepare", &LoadClient::Prepare},
      {"run", &LoadClient::Run},   {"open gpu", &LoadClient::OpenGpu},
      {"copy plain", &LoadClient::CopyPlain}};
  for (const auto& [name, method] : others) {
    commands->Add(name, [client, method = method](const Json& command) -> absl::StatusOr<Json> {
      if (!client->connected()) return absl::FailedPreconditionError("connect comes first");
      return ((*client).*method)(command);
    });
  }
}

}  // namespace kvkeep::bench
