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

constexpr client::Deadline kPatience{30'000};

class Kvkeep final : public Contestant {
 public:
  Kvkeep(std::unique_ptr<Client> client, client::Namespace ns, std::string admin, bool staging)
      : client_(std::move(client)),
        ns_(std::move(ns)),
        admin_(std::move(admin)),
        staging_(staging) {}

  absl::Status Put(const ChunkKey& key, std::span<const std::byte> payload) override {
    std::vector<client::PutChunk> chunks(1);
    chunks[0].key = key;
    chunks[0].runs = {payload};
    KVKEEP_ASSIGN_OR_RETURN(const client::PutResult result,
                            client_->Put(ns_, std::move(chunks), {.no_g3 = true}));
    KVKEEP_RETURN_IF_ERROR(result.error);
    if (result.chunks[0].status == client::PutStatus::kStored) return absl::OkStatus();
    return absl::ResourceExhaustedError(result.chunks[0].message);
  }

  absl::Status Get(const ChunkKey& key, std::span<std::byte> out) override {
    const std::span<std::byte> destinations[] = {out};
    client::GetOptions options;
    options.destinations = destinations;
    KVKEEP_ASSIGN_OR_RETURN(const client::GetResult result,
                            client_->Get(ns_, {&key, 1}, std::move(options)));
    KVKEEP_RETURN_IF_ERROR(result.error);
    if (result.chunks[0].status == client::GetStatus::kHit) return absl::OkStatus();
    return absl::NotFoundError(std::string(client::GetStatusName(result.chunks[0].status)));
  }

  absl::StatusOr<uint64_t> Lookup(absl::Span<const ChunkKey> keys) override {
    KVKEEP_ASSIGN_OR_RETURN(const client::LookupResult found, client_->Lookup(ns_, keys, {}));
    return found.leading_keys;
  }

  absl::Status Clear() override {
    return client::AdminClient(admin_, kPatience).Clear(nullptr).status();
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
                       .default_deadline = kPatience,
                       .path = local ? client::PathChoice::kLocal : client::PathChoice::kGrpc,
                       .local_socket = setup.local_socket}));
  KVKEEP_ASSIGN_OR_RETURN(client::Namespace ns,
                          client->OpenNamespace({.model = "compare", .tokens_per_chunk = 256}));
  return std::make_unique<Kvkeep>(std::move(client), std::move(ns), setup.admin_endpoint,
                                  path == KvkeepPath::kStaging);
}

}  // namespace kvkeep::compare
