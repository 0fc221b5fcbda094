#include "tiers/remote/object_place.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/objects/spread_store.h"

namespace kvkeep {
namespace {

// Fewer are not shared out among threads.
constexpr uint32_t kLeastConnections = 16;

}  // namespace

absl::StatusOr<OpenedPlace> OpenObjectPlace(const ObjectPlace& place, Clock* clock,
                                            RandomSource* random) {
  OpenedPlace opened;
  if (!place.directory.empty()) {
    opened.where = place.directory;
    opened.directory_pool = std::make_unique<ThreadPool>("kvkeep-g4", place.directory_threads);
    auto shared = std::make_unique<DirectoryStore>(
        DirectoryStoreOptions{.path = place.directory,
                              .mark = place.fleet,
                              .writer = place.writer,
                              .longest_request = place.longest_directory_request},
        opened.directory_pool.get(), clock, random);
    opened.shared = shared.get();
    opened.store = std::move(shared);
    return opened;
  }
  KVKEEP_ASSIGN_OR_RETURN(S3Urls urls, S3Urls::Make(place.bucket));
  KVKEEP_ASSIGN_OR_RETURN(
      std::unique_ptr<S3KeySource> source,
      MakeS3KeySource(place.keys, place.bucket.region, place.http,
                      [](const char* name) { return std::getenv(name); }, clock));
  const uint32_t threads = std::clamp(place.http.connections / kLeastConnections, uint32_t{1},
                                      std::max(place.http_threads, uint32_t{1}));
  std::vector<CurlEngineOptions> each(threads, place.http);
  std::vector<std::unique_ptr<HttpEngine>> engines;
  for (uint32_t i = 0; i < threads; ++i) {
    each[i].connections = (place.http.connections + i) / threads;
    KVKEEP_ASSIGN_OR_RETURN(engines.emplace_back(), CurlEngine::Make(each[i], clock));
  }
  opened.where = absl::StrCat(place.bucket.endpoints.front(), "/", place.bucket.bucket);
  opened.credentials = std::make_unique<S3Credentials>(
      std::make_unique<BackgroundKeySource>(std::move(source)), clock, random);
  opened.credentials->Tick();
  static_cast<void>(opened.credentials->AwaitFirst(place.keys_within));
  S3StoreOptions options;
  options.window.first = std::max(options.window.first / threads, uint32_t{1});
  std::vector<std::unique_ptr<ObjectStore>> stores;
  for (uint32_t i = 0; i < threads; ++i) {
    options.window.most = each[i].connections;
    auto s3 = std::make_unique<S3Store>(urls, options, std::move(engines[i]),
                                        opened.credentials.get(), clock, random);
    opened.s3.push_back(s3.get());
    stores.push_back(std::move(s3));
  }
  opened.store = threads == 1 ? std::move(stores.front())
                              : std::make_unique<SpreadStore>(std::move(stores));
  return opened;
}

}  // namespace kvkeep
