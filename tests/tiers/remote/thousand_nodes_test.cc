// A bucket that a thousand nodes share, for a second, and the number of requests it has to answer.
//
// Each node gets 20 prompts of 64 chunks a second: another node has put all chunks of one, no node
// has any of two, and 17 are on the node. On paper that is 3,000 searches and 24,000 to 62,000 GETs
// for them, and 64,000 GETs of images. There are fewer bytes than in reality.
#include <catch2/catch.hpp>
#include <deque>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/memory_object_store.h"
#include "tests/tiers/remote/image_in_memory.h"
#include "tiers/remote/bucket_source.h"

namespace kvkeep {
namespace {

constexpr uint64_t kNodes = 1000, kChunksOfPrompt = 64, kPromptsThere = 50;
constexpr double kPaperDoubt = 0.2;  // of the figures on paper

using Prompt = std::vector<ChunkId>;

Prompt PromptNamed(uint64_t name) {
  SeededRandom random(name);
  Prompt prompt;
  for (uint64_t i = 0; i < kChunksOfPrompt; ++i) {
    prompt.push_back({CountedFrom<NamespaceDigest>(1), random.Next<ChunkKey>(), PartId(0)});
  }
  return prompt;
}

class Fleet {
 public:
  Fleet() {
    for (uint64_t i = 0; i < kNodes; ++i) {
      auto store = std::make_unique<MemoryObjectStore>(&objects_, &executor_, &clock_, i);
      stores_.push_back(store.get());
      sources_.push_back(std::make_unique<BucketSource>(
          BucketSourceOptions{.presence_entries = 4096}, KeysOf(0), std::move(store), &clock_,
          &random_));
    }
    for (uint64_t name = 0; name < kPromptsThere; ++name) PutAll(PromptNamed(name));
  }

  // Returns how many of a prompt's chunks the node found; it reads them all.
  size_t Serve(uint64_t node, const Prompt& prompt) {
    BucketSource& source = *sources_[node];
    const uint64_t& gets = stores_[node]->gets;
    const uint64_t before = gets;
    RemoteSource::Found found;
    source.Find(prompt, RemoteSource::Wanted::kLeadingRun, MonotonicTime::max(),
                [&](RemoteSource::Found is) { found = std::move(is); });
    executor_.RunAll();
    const uint64_t found_by = gets - before;
    searched_ += found_by;
    size_t there = 0;
    while (there < found.size() && found[there].has_value()) ++there;
    std::deque<Image> images;
    std::deque<Told> told;
    for (size_t i = 0; i < there; ++i) {
      const ImageShape& shape = *found[i];
      Image& image = images.emplace_back(
          Image{prompt[i], shape, std::vector<std::byte>(shape.blocks().value() * kBlockBytes)});
      StartRead(source, image, &told.emplace_back());
    }
    executor_.RunAll();
    for (size_t i = 0; i < there; ++i) CHECK((told[i].ended(images[i].shape) && told[i].well()));
    fetched_ += gets - before - found_by;
    return there;
  }

  uint64_t searched() const { return searched_; }  // GETs of searches
  uint64_t fetched() const { return fetched_; }    // GETs of images
  uint64_t searches() const {
    uint64_t all = 0;
    for (const auto& source : sources_) all += source->counters().searches;
    return all;
  }

 private:
  void PutAll(const Prompt& prompt) {
    for (const ChunkId& id : prompt) {
      Image image = Image::Make(*sources_[0], id, 1000, 1);
      std::optional<absl::Status> told;
      sources_[0]->Write({image.id, image.shape, image.header(), image.memory(),
                          [&](absl::Status status) { told = status; }, false});
      executor_.RunAll();
      REQUIRE(told.value().ok());
    }
  }

  ManualClock clock_;
  ManualExecutor executor_;
  SeededRandom random_{1};
  MemoryObjects objects_;
  std::vector<MemoryObjectStore*> stores_;
  std::vector<std::unique_ptr<BucketSource>> sources_;
  uint64_t searched_ = 0, fetched_ = 0;
};

}  // namespace

TEST_CASE("a second of a thousand nodes costs the requests that it costs on paper", "[figures]") {
  Fleet fleet;
  for (uint64_t node = 0; node < kNodes; ++node) {
    CHECK(fleet.Serve(node, PromptNamed(node % kPromptsThere)) == kChunksOfPrompt);
    for (uint64_t fresh : {1, 2}) {
      CHECK(fleet.Serve(node, PromptNamed(1'000'000 + 2 * node + fresh)) == 0);
    }
  }
  CAPTURE(fleet.searches(), fleet.searched(), fleet.fetched());
  CHECK(fleet.searches() == 3000);
  CHECK(static_cast<double>(fleet.searched()) >= 24'000 * (1 - kPaperDoubt));
  CHECK(static_cast<double>(fleet.searched()) <= 62'000 * (1 + kPaperDoubt));
  CHECK(static_cast<double>(fleet.fetched()) >= 64'000 * (1 - kPaperDoubt));
  CHECK(static_cast<double>(fleet.fetched()) <= 64'000 * (1 + kPaperDoubt));
}

}  // namespace kvkeep
