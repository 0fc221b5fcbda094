#include <memory>
#include <vector>

#include "client/admin.h"
#include "client/client.h"
#include "client/payload_malloc.h"
#include "tiers/base/status_macros.h"
#include "tools/compare/contestant.h"

namespace kvkeep::compare {
namespace {

using client::Client;

constexpr client::Deadline kCallPatience{30'000};

class Kvkeep final : public Contestant {
 public:
  Kvkeep(std::unique_ptr<Client> client, client::Namespace ns, std::string admin, bool staging)
      : client_(std::move(client)),
        ns_(std::move(ns)),
        admin_(std::move(admin)),
        staging_(staging) {}

  absl::Status Put(const ChunkKey& key, std::span<const std::byte> payload) override {
    return PutAll({&key, 1}, {&payload, 1});
  }
  absl::Status PutAll(absl::Span<const ChunkKey> keys, Payloads payloads) override {
    std::vector<client::PutChunk> chunks(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      chunks[i].key = keys[i];
      chunks[i].runs = {payloads[i]};
    }
    KVKEEP_ASSIGN_OR_RETURN(const client::PutResult result,
                            client_->Put(ns_, std::move(chunks), {.no_g3 = true}));
    KVKEEP_RETURN_IF_ERROR(result.error);
    for (const auto& chunk : result.chunks) {
      if (chunk.status == client::PutStatus::kStored) continue;
      return absl::ResourceExhaustedError(chunk.message);
    }
    return absl::OkStatus();
  }

  absl::Status Get(const ChunkKey& key, std::span<std::byte> out) override {
    return GetAll({&key, 1}, {&out, 1});
  }
  absl::Status GetAll(absl::Span<const ChunkKey> keys, Targets targets) override {
    client::GetOptions options;
    options.destinations = targets;
    KVKEEP_ASSIGN_OR_RETURN(const client::GetResult result,
                            client_->Get(ns_, keys, std::move(options)));
    KVKEEP_RETURN_IF_ERROR(result.error);
    for (const auto& chunk : result.chunks) {
      if (chunk.status == client::GetStatus::kHit) continue;
      return absl::NotFoundError(std::string(client::GetStatusName(chunk.status)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Lookup(absl::Span<const ChunkKey> keys) override {
    KVKEEP_ASSIGN_OR_RETURN(const client::LookupResult found, client_->Lookup(ns_, keys, {}));
    return found.leading_keys;
  }

  absl::Status Clear() override {
    return client::AdminClient(admin_, kCallPatience).Clear(nullptr).status();
  }

  absl::StatusOr<std::span<std::byte>> PutMemory(uint64_t bytes) override {
    if (!staging_) return std::span<std::byte>();
    KVKEEP_ASSIGN_OR_RETURN(buffer_, client_->AllocateStaging(bytes));
    return buffer_.memory();
  }

 private:
  const std::unique_ptr<Client> client_;
  const client::Namespace ns_;
  const std::string admin_;
  const bool staging_;
  client::StagingBuffer buffer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> MakeKvkeep(const Setup& setup, KvkeepPath path) {
  client::TuneMallocForPayloads();
  const bool local = path == KvkeepPath::kLocal || path == KvkeepPath::kStaging;
  KVKEEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Client> client,
      Client::Connect({.endpoint = path == KvkeepPath::kTcp ? setup.tcp_endpoint : setup.endpoint,
                       .client_name = "compare",
                       .default_deadline = kCallPatience,
                       .path = local ? client::PathChoice::kLocal : client::PathChoice::kGrpc,
                       .local_socket = setup.local_socket}));
  KVKEEP_ASSIGN_OR_RETURN(client::Namespace ns,
                          client->OpenNamespace({.model = "compare", .tokens_per_chunk = 256}));
  return std::make_unique<Kvkeep>(std::move(client), std::move(ns), setup.admin_endpoint,
                                  path == KvkeepPath::kStaging);
}

}  // namespace kvkeep::compare
