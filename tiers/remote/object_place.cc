#include "tiers/remote/object_place.h"

#include <absl/strings/str_cat.h>

#include <cstdlib>
#include <utility>

#include "tiers/base/status_macros.h"

namespace kvkeep {

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
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<HttpEngine> engine,
                          CurlEngine::Make(place.http, clock));
  opened.where = absl::StrCat(place.bucket.endpoints.front(), "/", place.bucket.bucket);
  opened.credentials = std::make_unique<S3Credentials>(
      std::make_unique<BackgroundKeySource>(std::move(source)), clock, random);
  opened.credentials->Tick();
  static_cast<void>(opened.credentials->AwaitFirst(place.keys_within));
  S3StoreOptions options;
  options.window.most = place.http.connections;
  auto s3 = std::make_unique<S3Store>(std::move(urls), options, std::move(engine),
                                      opened.credentials.get(), clock, random);
  opened.s3 = s3.get();
  opened.store = std::move(s3);
  return opened;
}

}  // namespace kvkeep
