#include "tiers/remote/g4.h"

#include <absl/strings/str_cat.h>

#include <cstdlib>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/objects/directory_store.h"
#include "tiers/objects/s3_store.h"
#include "tiers/remote/fleet_keys.h"

namespace kvkeep {
namespace {

constexpr int kDirectoryThreads = 4;  // each waits for the file system

std::unique_ptr<KeyRing> DeriveKeys(const G4Options& options, const Secret& fleet_key) {
  std::vector<KeyRing::TenantKey> keys;
  for (const std::string& tenant : options.tenants) {
    keys.push_back({tenant, FleetKeys::DeriveDataKey(fleet_key, options.fleet_name, tenant)});
  }
  return KeyRing::Of(std::move(keys));
}

}  // namespace

G4::~G4() = default;

absl::StatusOr<std::unique_ptr<ObjectStore>> G4::OpenStore(const G4Options& options, G4& g4,
                                                           Clock* clock, RandomSource* random) {
  if (!options.directory.empty()) {
    g4.where_ = options.directory;
    g4.directory_pool_ = std::make_unique<ThreadPool>("kvkeep-g4", kDirectoryThreads);
    return DirectoryStore::Make({.path = options.directory}, g4.directory_pool_.get(), clock,
                                random);
  }
  KVKEEP_ASSIGN_OR_RETURN(S3Urls urls, S3Urls::Make(options.bucket));
  KVKEEP_ASSIGN_OR_RETURN(
      std::unique_ptr<S3KeySource> source,
      MakeS3KeySource(options.credentials_file, [](const char* name) { return getenv(name); }));
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<HttpEngine> engine,
                          CurlEngine::Make(options.http, clock));
  g4.where_ = absl::StrCat(options.bucket.endpoints.front(), "/", options.bucket.bucket);
  g4.credentials_ = std::make_unique<S3Credentials>(std::move(source), clock, random);
  g4.credentials_->Tick();
  auto s3 = std::make_unique<S3Store>(std::move(urls), S3StoreOptions{}, std::move(engine),
                                      g4.credentials_.get(), clock, random);
  g4.s3_ = s3.get();
  return s3;
}

absl::StatusOr<std::unique_ptr<G4>> G4::Open(const G4Options& options, const Secret& fleet_key,
                                             Clock* clock, RandomSource* random) {
  std::unique_ptr<G4> g4(new G4);
  if (options.encryption) g4->keys_ = DeriveKeys(options, fleet_key);
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStore> store,
                          OpenStore(options, *g4, clock, random));
  g4->watch_ = std::make_unique<HealthWatch>(clock);
  auto stoppable = std::make_unique<StoppableStore>(std::move(store));
  g4->store_ = stoppable.get();
  g4->source_ = std::make_unique<BucketSource>(
      BucketSourceOptions{.epoch = options.epoch, .probes_per_second = options.probes_per_second},
      FleetKeys::Derive(fleet_key, options.fleet_name), std::move(stoppable), clock, random);
  return g4;
}

std::optional<ObjectStoreHealth> G4::Tick() {
  if (credentials_ != nullptr) credentials_->Tick();
  return watch_->Tick(*source_);
}

G4Snapshot G4::snapshot() const {
  return {.where = where_,
          .health = health(),
          .source = counters(),
          .checks = watch_->counters(),
          .requests = s3_ == nullptr ? std::nullopt : std::optional(s3_->counters())};
}

}  // namespace kvkeep
