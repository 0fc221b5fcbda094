#include "tiers/remote/keyed_source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/tenant_tag.h"
#include "tiers/remote/missing_chunks.h"

namespace kvkeep {
namespace {

// Least number of absent chunks that a source remembers.
constexpr size_t kLeastPresenceEntries = 1 << 14;

// Turns the header of an image of `from` into one of `to`. DataLoss, or an error of DecodeHeader:
// it is no header of `from`.
absl::Status MoveHeader(const BucketSource& from, const BucketSource& to, HeaderPage page) {
  KVKEEP_ASSIGN_OR_RETURN(ImageHeader header, DecodeHeader(page, from.mac_key()));
  if (header.placement.place != from.place()) {
    return absl::DataLossError("the image beyond the node is of another place");
  }
  header.placement.place = to.place();
  EncodeHeader(header, to.mac_key(), page);
  return absl::OkStatus();
}

}  // namespace

struct KeyedSource::Finding {
  const Chain& chain;
  const std::vector<ChunkId> ids;
  const Wanted wanted;
  const MonotonicTime deadline;
  const std::function<void(Found)> done;
  Found found;
  size_t asked = 0;      // sources, one after the other
  bool earlier = false;  // one of the chunks was found under an earlier key
};

KeyedSource::KeyedSource(const BucketSourceOptions& options, KeySet keys,
                         std::unique_ptr<ObjectStore> store, Clock* clock, RandomSource* random)
    : store_(std::move(store)) {
  BucketSourceOptions of_one = options;
  const size_t count = 1 + keys.previous.size() + keys.tenants.size();
  of_one.presence_entries =
      std::max(options.presence_entries / std::bit_ceil(count), kLeastPresenceEntries);
  const auto limits = std::make_shared<AskLimits>(options.probes_per_second);
  const auto add = [&](FleetKeys of) {
    sources_.push_back(std::make_unique<BucketSource>(of_one, std::move(of), store_.get(), limits,
                                                      clock, random));
    return sources_.back().get();
  };
  fleet_.push_back(add(std::move(keys.fleet)));
  for (FleetKeys& of : keys.previous) fleet_.push_back(add(std::move(of)));
  for (auto& [tag, of] : keys.tenants) tenants_[tag] = {add(std::move(of))};
}

KeyedSource::~KeyedSource() { store_.reset(); }

const KeyedSource::Chain& KeyedSource::ChainOf(const ChunkId& id) const {
  const auto own = tenants_.find(TenantTagOf(id.ns));
  return own == tenants_.end() ? fleet_ : own->second;
}

bool KeyedSource::writable() const {
  return std::all_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source->writable(); });
}

BucketSourceCounters KeyedSource::counters() const {
  using Fields = std::array<uint64_t, sizeof(BucketSourceCounters) / sizeof(uint64_t)>;
  Fields sum{};
  for (const auto& source : sources_) {
    const auto fields = std::bit_cast<Fields>(source->counters());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += fields[i];
  }
  return std::bit_cast<BucketSourceCounters>(sum);
}

PreviousKeyCounters KeyedSource::previous_counters() const {
  return {.searches = previous_searches_, .found = previous_found_};
}

// ---- find

void KeyedSource::Find(std::vector<ChunkId> ids, Wanted wanted, MonotonicTime deadline,
                       std::function<void(Found)> done) {
  KVKEEP_CHECK(!ids.empty());
  const Chain& chain = ChainOf(ids.front());
  if (chain.size() == 1) {
    return chain.front()->Find(std::move(ids), wanted, deadline, std::move(done));
  }
  Found none(ids.size());
  Ask(std::make_shared<Finding>(Finding{.chain = chain,
                                        .ids = std::move(ids),
                                        .wanted = wanted,
                                        .deadline = deadline,
                                        .done = std::move(done),
                                        .found = std::move(none)}));
}

// Asks the next source for the chunks that are not found yet.
void KeyedSource::Ask(const std::shared_ptr<Finding>& finding) {
  MissingChunks missing = MissingChunks::Of(finding->ids, finding->found);
  const size_t sources = finding->chain.size() + (finding->earlier ? 1 : 0);
  if (missing.ids.empty() || finding->asked == sources) {
    return finding->done(std::move(finding->found));
  }
  const size_t next = finding->asked++ % finding->chain.size();
  if (next > 0) ++previous_searches_;
  finding->chain[next]->Find(std::move(missing.ids), finding->wanted, finding->deadline,
                             [this, finding, next, at = std::move(missing.at)](const Found& found) {
                               KVKEEP_CHECK(found.size() == at.size());
                               for (size_t i = 0; i < found.size(); ++i) {
                                 if (!found[i].has_value()) continue;
                                 finding->found[at[i]] = found[i];
                                 if (next > 0) ++previous_found_;
                                 finding->earlier |= next > 0;
                               }
                               Ask(finding);
                             });
}

// ---- read

void KeyedSource::Read(ReadRequest request) {
  const Chain& chain = ChainOf(request.id);
  if (chain.size() == 1 && chain.front() == &fleets()) return fleets().Read(std::move(request));
  ReadFrom(std::make_shared<const ReadRequest>(std::move(request)), chain, 0);
}

// Nobody remembers under which key it was found: an image that is absent under a key is read under
// the next one.
void KeyedSource::ReadFrom(const std::shared_ptr<const ReadRequest>& request, const Chain& chain,
                           size_t at) {
  KVKEEP_CHECK(at < chain.size());
  BucketSource& source = *chain[at];
  const bool last = at + 1 == chain.size();
  // Bytes still to be reported of an image that is not there.
  const auto absent = std::make_shared<std::atomic<uint64_t>>(0);
  source.Read({.id = request->id,
               .shape = request->shape,
               .header = request->header,
               .memory = request->memory,
               .header_done =
                   [this, request, &source, last, absent](absl::Status status) {
                     // Then no part had begun, and no piece was told of (OnPart).
                     if (absl::IsNotFound(status) && !last) {
                       *absent = request->shape.blocks().value() * kBlockBytes - kHeaderBytes;
                       return;
                     }
                     if (status.ok() && &source != &fleets()) {
                       status = MoveHeader(source, fleets(), request->header);
                     }
                     request->header_done(std::move(status));
                   },
               .piece_done =
                   [this, request, &chain, at, absent](size_t piece, uint64_t bytes,
                                                       absl::Status status) {
                     if (*absent == 0) return request->piece_done(piece, bytes, std::move(status));
                     KVKEEP_CHECK(*absent >= bytes);
                     if ((*absent -= bytes) == 0) ReadFrom(request, chain, at + 1);
                   },
               .deadline = request->deadline,
               .age = request->age});
}

// ---- write, remove

void KeyedSource::Write(WriteRequest request) {
  BucketSource& source = *ChainOf(request.id).front();
  if (&source == &fleets()) return source.Write(std::move(request));
  struct Page {
    std::array<std::byte, kHeaderBytes> bytes;
  };
  const auto page = std::make_shared<Page>();
  std::copy(request.header.begin(), request.header.end(), page->bytes.begin());
  KVKEEP_CHECK(MoveHeader(fleets(), source, page->bytes).ok());
  request.header = page->bytes;
  request.done = [page, done = std::move(request.done)](absl::Status status) {
    done(std::move(status));
  };
  source.Write(std::move(request));
}

void KeyedSource::Remove(const ChunkId& id, std::function<void(absl::Status)> done) {
  // A tenant with a key may once have been without it: images that it wrote then must not come back
  // either, should its key be dropped.
  Chain chain = ChainOf(id);
  if (chain.front() != &fleets()) chain.insert(chain.end(), fleet_.begin(), fleet_.end());
  struct Removal {
    std::function<void(absl::Status)> done;
    Mutex mu;
    size_t left ABSL_GUARDED_BY(mu);
    absl::Status status ABSL_GUARDED_BY(mu) = absl::OkStatus();  // the first failure
  };
  if (chain.size() == 1) return chain.front()->Remove(id, std::move(done));
  const auto removal = std::make_shared<Removal>();
  removal->done = std::move(done);
  {
    MutexLock lock(&removal->mu);
    removal->left = chain.size();
  }
  for (BucketSource* const source : chain) {
    source->Remove(id, [removal](const absl::Status& status) {
      absl::Status all;
      {
        MutexLock lock(&removal->mu);
        removal->status.Update(status);
        KVKEEP_CHECK(removal->left > 0);
        if (--removal->left > 0) return;
        all = removal->status;
      }
      removal->done(std::move(all));
    });
  }
}

}  // namespace kvkeep
