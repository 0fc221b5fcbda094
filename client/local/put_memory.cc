#include "client/local/put_memory.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "client/local/test_point.h"
#include "tiers/base/page_bytes.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kUnregisterDeadline{5};
// Puts want staging memory for this many chunks, at most kMostWanted bytes, and at most half of the
// session's limit.
constexpr uint64_t kWantedChunks = 32;
constexpr uint64_t kMostWanted = 64 * kMiB;
// How long puts may keep using an area that a larger one replaces.
constexpr std::chrono::milliseconds kRetire{50};
// How long to wait before asking again if the daemon had no memory, or less than was wanted.
constexpr std::chrono::milliseconds kAskAgain{250};
constexpr std::chrono::milliseconds kGrowAgain{1'000};  // twice as long each time
constexpr std::chrono::milliseconds kGrowAgainAtMost{32'000};
constexpr uint64_t kOwnBytes = 8 * kMiB;

uint64_t WantedFor(const LocalSession& session, uint64_t chunk_bytes) {
  const uint64_t most = std::min(kMostWanted, session.welcome().max_staging_bytes / 2);
  return std::min(most, kWantedChunks * RoundUp(chunk_bytes, kBlockBytes));
}

bool Shares(const LocalSession& session) {
  return session.welcome().version >= local::kSharedStagingSince;
}

absl::Status TooLarge(const LocalSession& session, uint64_t bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("staging memory: ", bytes, " bytes at once; the daemon's limit is ",
                   session.welcome().max_staging_bytes, " a session"));
}

absl::StatusOr<std::shared_ptr<StagingArea>> AskFor(const LocalSessionPtr& session, uint64_t bytes,
                                                    LocalSession::Time deadline) {
  const uint64_t id = session->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kStaging), id);
  writer.Append(local::StagingRequest{.bytes = bytes});
  auto area = Ask<std::shared_ptr<StagingArea>>(
      session, Kind::kStaging, id, writer, deadline,
      [&](LocalSession::Reply& reply) -> absl::StatusOr<std::shared_ptr<StagingArea>> {
        KVKEEP_ASSIGN_OR_RETURN(const auto said, ReadStruct<local::StagingReply>(reply));
        if (reply.descriptors.size() != 1) {
          return absl::InternalError("local: staging memory without its descriptor");
        }
        KVKEEP_ASSIGN_OR_RETURN(
            auto file, MappedFile::Map(reply.descriptors[0], true, said.bytes, said.bytes));
        // Fills the page tables now rather than in the first put. Best effort, from Linux 5.14 on.
        (void)madvise(file->memory().data(), file->memory().size(), MADV_POPULATE_WRITE);
        TestPoint("staging-mapped");
        return std::make_shared<StagingArea>(std::move(file));
      });
  // A put ended by its deadline. Its memory is ours again, but the daemon still reads it.
  if (absl::IsFailedPrecondition(area.status())) {
    return absl::ResourceExhaustedError(area.status().message());
  }
  return area;
}

absl::StatusOr<uint32_t> AskToRegister(const LocalSessionPtr& session, const LocalRegion& region,
                                       LocalSession::Time deadline) {
  const uint64_t id = session->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kRegisterMemory), id);
  writer.Append(local::RegisterMemory{.bytes = region.mapping.size()});
  const int fd = region.fd.get();
  return Ask<uint32_t>(
      session, Kind::kRegisterMemory, id, writer, deadline,
      [](LocalSession::Reply& reply) -> absl::StatusOr<uint32_t> {
        KVKEEP_ASSIGN_OR_RETURN(const auto said, ReadStruct<local::RegisterReply>(reply));
        if (said.region == local::kStagingRegion) {
          return absl::InternalError("local: registered memory has the number of the staging area");
        }
        return said.region;
      },
      nullptr, {&fd, 1});
}

void Unregister(const LocalSessionPtr& session, uint32_t region) {
  const uint64_t id = session->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kUnregisterMemory), id);
  writer.Append(local::UnregisterMemory{.region = region});
  // This does not wait for the answer. The daemon refuses if it still reads a put that ended by its
  // deadline; then the session's end unregisters the memory.
  session->Send(id, writer,
                {.kind = Kind::kUnregisterMemory,
                 .deadline = steady_clock::now() + kUnregisterDeadline,
                 .done = [](absl::StatusOr<LocalSession::Reply>) { return absl::OkStatus(); },
                 .late = nullptr,
                 .copied = nullptr});
}

// Gives the staging memory back, without waiting for the answer.
void GiveBackStaging(const LocalSessionPtr& session) {
  const uint64_t id = session->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kStaging), id);
  writer.Append(local::StagingRequest{.bytes = local::kNoStaging});
  session->Send(id, writer,
                {.kind = Kind::kStaging,
                 .deadline = steady_clock::now() + kUnregisterDeadline,
                 .done = [](absl::StatusOr<LocalSession::Reply>) { return absl::OkStatus(); },
                 .late = nullptr,
                 .copied = nullptr});
}

absl::StatusOr<std::shared_ptr<const MappedFile>> OwnMemory(uint64_t bytes, GuardedFd* kept) {
  UniqueFd fd(memfd_create("kvkeep-put", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory for puts: ", bytes, " bytes: ", std::strerror(errno)));
  }
  KVKEEP_ASSIGN_OR_RETURN(auto file, MappedFile::Map(fd, true, bytes, bytes));
  *kept = GuardedFd(std::move(fd));
  return file;
}

void Known(const LocalSessionPtr& session, uint32_t number, LocalRegion* region) {
  {
    MutexLock lock(&region->mu);
    if (!region->closed) {
      region->epoch = session->epoch();
      region->region = number;
      region->unregister = [weak = std::weak_ptr<LocalSession>(session)](uint32_t number) {
        if (const LocalSessionPtr known = weak.lock(); known != nullptr) Unregister(known, number);
      };
      return;
    }
  }
  Unregister(session, number);  // its owner went away meanwhile
}

}  // namespace

void PutMemory::SetEpoch(uint64_t epoch) {
  if (std::exchange(epoch_, epoch) == epoch) return;
  area_ = nullptr;
  own_ = nullptr;
  wanted_bytes_ = 0;
  grow_at_ = ask_at_ = Time();
  grow_wait_ = kGrowAgain;
}

void PutMemory::NoteNotGrown() {
  grow_at_ = steady_clock::now() + grow_wait_;
  grow_wait_ = std::min(2 * grow_wait_, kGrowAgainAtMost);
}

void PutMemory::EndAsking(const LocalSessionPtr& session) {
  {
    MutexLock lock(&mu_);
    asking_ = false;
    asked_.NotifyAll();
  }
  session->Nudge();  // now that area_ is set, so that the background thread tends the area
}

absl::StatusOr<std::shared_ptr<StagingArea>> PutMemory::Area(const LocalSessionPtr& session,
                                                             uint64_t chunk_bytes, Time deadline) {
  if (chunk_bytes > session->welcome().max_staging_bytes) return TooLarge(*session, chunk_bytes);
  bool ask = true;
  uint64_t wanted = 0;
  {
    MutexLock lock(&mu_);
    while (true) {
      const Time now = steady_clock::now();
      if (session->over()) return absl::UnavailableError("put: the session ended");
      SetEpoch(session->epoch());
      const bool grows = Grows(now) && !asking_;
      ask = now >= ask_at_;
      if (ask && !grows && Fits(area_, *session, chunk_bytes)) return area_;
      if ((!ask || asking_) && Fits(own_, *session, chunk_bytes)) return own_;
      if (!asking_) break;
      if (now >= deadline) {
        return absl::DeadlineExceededError("staging memory: still asked for");
      }
      asked_.WaitFor(&mu_, deadline - now);
    }
    asking_ = true;
    wanted = wanted_bytes_;
  }
  absl::StatusOr<AreaPtr> area = absl::ResourceExhaustedError("staging memory is in use");
  if (ask) {
    area = Replace(session, chunk_bytes, wanted, steady_clock::now() + kRetire, deadline);
  }
  if (absl::IsResourceExhausted(area.status())) {
    absl::StatusOr<AreaPtr> own = MakeOwn(session, chunk_bytes, deadline);
    if (own.ok() || !absl::IsResourceExhausted(own.status())) area = std::move(own);
    MutexLock lock(&mu_);
    if (!area.ok() && Fits(area_, *session, chunk_bytes)) area = area_;  // which gets room later
  }
  EndAsking(session);
  return area;
}

absl::StatusOr<PutMemory::AreaPtr> PutMemory::Replace(const LocalSessionPtr& session,
                                                      uint64_t least, uint64_t wanted,
                                                      Time free_by, Time deadline) {
  AreaPtr old;
  {
    MutexLock lock(&mu_);
    old = area_;
  }
  if (old != nullptr && !old->Retire(free_by)) {
    MutexLock lock(&mu_);
    NoteNotGrown();
    if (old->memory().size() >= least) return old;
    ask_at_ = steady_clock::now() + kAskAgain;
    return absl::ResourceExhaustedError(
        absl::StrCat("staging memory: ", least, " bytes at once, and the session's ",
                     old->memory().size(), " are in use, so that it cannot be replaced"));
  }
  {
    MutexLock lock(&mu_);
    area_ = nullptr;  // retired: no put can name a range of it once there is a new area
    ask_at_ = grow_at_ = steady_clock::now() + kAskAgain;  // set anew if the call succeeds
  }
  KVKEEP_ASSIGN_OR_RETURN(AreaPtr area, AskFor(session, wanted, deadline));
  if (area->memory().size() < least && wanted < least) {
    // Asks for room for several chunks, so that one is filled while another is read. Each may need
    // a word beside it (LocalPut).
    const uint64_t with_word = RoundUp(least, kBlockBytes) + kBlockBytes;
    area = nullptr;  // the daemon replaces it
    KVKEEP_ASSIGN_OR_RETURN(
        area, AskFor(session, std::min(4 * with_word, session->welcome().max_staging_bytes),
                     deadline));
  }
  MutexLock lock(&mu_);
  area_ = area;  // kept even if it is too small for this chunk
  if (area->memory().size() < least) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "staging memory: ", least, " bytes at once; the daemon has ", area->memory().size(),
        " for this session, its limit is ", session->welcome().max_staging_bytes));
  }
  ask_at_ = grow_at_ = Time();
  if (area->memory().size() < wanted) {
    NoteNotGrown();
  } else {
    grow_wait_ = kGrowAgain;
  }
  return area;
}

absl::StatusOr<PutMemory::AreaPtr> PutMemory::MakeOwn(const LocalSessionPtr& session,
                                                      uint64_t chunk_bytes, Time deadline) {
  {
    MutexLock lock(&mu_);
    if (Fits(own_, *session, chunk_bytes)) return own_;
  }
  const uint64_t most = session->welcome().max_staging_bytes;
  const uint64_t wanted = std::min(most, std::max(2 * chunk_bytes, kOwnBytes));
  const uint64_t bytes = RoundUp(std::max(chunk_bytes, wanted), PageBytes());
  LocalRegion region;
  KVKEEP_ASSIGN_OR_RETURN(const auto file, OwnMemory(bytes, &region.fd));
  region.mapping = file->memory();
  KVKEEP_ASSIGN_OR_RETURN(const uint32_t number, AskToRegister(session, region, deadline));
  const auto area = std::make_shared<StagingArea>(
      file, number, [weak = std::weak_ptr<LocalSession>(session), number] {
        if (const LocalSessionPtr known = weak.lock(); known != nullptr) Unregister(known, number);
      });
  own_areas_.fetch_add(1, std::memory_order_relaxed);
  AreaPtr before;  // above the lock, so that it is freed without it
  MutexLock lock(&mu_);
  if (epoch_ == session->epoch()) before = std::exchange(own_, area);
  return area;
}

bool PutMemory::Changes(const LocalSessionPtr& session, uint64_t chunk_bytes) {
  const Time now = steady_clock::now();
  MutexLock lock(&mu_);
  if (area_ == nullptr || epoch_ != session->epoch() || now < ask_at_) return false;
  return Grows(now) || area_->memory().size() < chunk_bytes;
}

void PutMemory::NoteWait(const LocalSessionPtr& session, const StagingArea& area,
                         uint64_t chunk_bytes) {
  MutexLock lock(&mu_);
  if (area_.get() == &area && Shares(*session)) {
    wanted_bytes_ = std::max(wanted_bytes_, WantedFor(*session, chunk_bytes));
  }
}

void PutMemory::Avoid(const StagingArea& area) {
  MutexLock lock(&mu_);
  if (area_.get() == &area) ask_at_ = steady_clock::now() + kAskAgain;
}

absl::StatusOr<std::span<std::byte>> PutMemory::Buffer(const LocalSessionPtr& session,
                                                       uint64_t bytes, Time deadline,
                                                       std::shared_ptr<StagingArea>* area) {
  if (bytes > session->welcome().max_staging_bytes) return TooLarge(*session, bytes);
  // Buffers are kept, as more of them may be wanted soon.
  const uint64_t wanted =
      Shares(*session)
          ? std::max(bytes, std::min(kMostWanted, session->welcome().max_staging_bytes / 2))
          : 0;
  {
    MutexLock lock(&mu_);
    while (asking_) {
      const Time now = steady_clock::now();
      if (now >= deadline) {
        return absl::DeadlineExceededError("staging memory: still asked for");
      }
      asked_.WaitFor(&mu_, deadline - now);
    }
    SetEpoch(session->epoch());
    if (Fits(area_, *session, bytes)) {
      *area = area_;
      if (const auto range = area_->TryAllocate(bytes); range.has_value()) return *range;
      if (area_->memory().size() >= wanted) {
        return absl::ResourceExhaustedError(
            absl::StrCat("staging memory: no ", bytes, " of the ", area_->memory().size(),
                         " bytes of this session are free in one run"));
      }
    }
    asking_ = true;
  }
  absl::StatusOr<AreaPtr> now = Replace(session, bytes, wanted, Time(), deadline);
  EndAsking(session);
  if (!now.ok()) return now.status();
  *area = *std::move(now);
  if (const auto range = (*area)->TryAllocate(bytes); range.has_value()) return *range;
  return absl::ResourceExhaustedError(
      absl::StrCat("staging memory: no ", bytes, " of the ", (*area)->memory().size(),
                   " bytes of this session are free in one run"));
}

PutMemory::Time PutMemory::Tend(const LocalSessionPtr& session) {
  const Time now = steady_clock::now();
  Time next = Time::max();
  bool give_back = false;
  AreaPtr own;  // above the lock, so that its end, which tells the daemon, comes without it
  {
    MutexLock lock(&mu_);
    if (epoch_ != session->epoch()) return next;
    const bool asking = asking_;
    const auto is_idle = [&](const AreaPtr& area) {
      if (area == nullptr) return false;
      const Time end = area->idle_since().value_or(now) + idle_;
      if (now >= end && !asking && area->Retire()) return true;
      next = std::min(next, std::max(end, now + idle_ / 4));
      return false;
    };
    if (is_idle(own_)) own = std::move(own_);
    if (Shares(*session) && is_idle(area_)) {
      area_ = nullptr;
      wanted_bytes_ = 0;
      give_back = true;
    }
  }
  if (give_back) GiveBackStaging(session);
  return next;
}

absl::StatusOr<std::shared_ptr<LocalRegion>> PutMemory::MakeRegion(
    int fd, std::span<const std::byte> mapping, const RegisterOptions& options) {
  auto region = std::make_shared<LocalRegion>();
  region->mapping = mapping;
  region->reused = options.reused;
  UniqueFd ours(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!ours.valid()) return absl::ErrnoToStatus(errno, "fd: cannot be duplicated");
  region->fd = GuardedFd(std::move(ours));
  return region;
}

absl::Status PutMemory::Register(const LocalSessionPtr& session,
                                 const std::shared_ptr<LocalRegion>& region,
                                 LocalSession::Time deadline) {
  {
    MutexLock lock(&region->mu);
    if (std::exchange(region->asked_epoch, session->epoch()) == session->epoch()) {
      return absl::OkStatus();
    }
  }
  KVKEEP_ASSIGN_OR_RETURN(const uint32_t number, AskToRegister(session, *region, deadline));
  Known(session, number, region.get());
  return absl::OkStatus();
}

void PutMemory::Keep(const std::shared_ptr<LocalRegion>& region) {
  MutexLock lock(&mu_);
  std::erase_if(regions_, [](const auto& known) { return known.expired(); });
  regions_.push_back(region);
}

std::vector<std::shared_ptr<LocalRegion>> PutMemory::Kept() {
  std::vector<std::shared_ptr<LocalRegion>> regions;
  MutexLock lock(&mu_);
  for (const auto& weak : regions_) {
    if (auto region = weak.lock(); region != nullptr) regions.push_back(std::move(region));
  }
  return regions;
}

void PutMemory::RegisterAgain(const LocalSessionPtr& session, LocalSession::Time deadline) {
  for (const auto& region : Kept()) {
    (void)region->in_use();  // drops connections that have ended
    // If this fails, puts from the region are copied into staging memory, as any others.
    (void)Register(session, region, deadline);
  }
}

bool PutMemory::HasUnregistered(uint64_t epoch) {
  const auto regions = Kept();
  return std::any_of(regions.begin(), regions.end(), [epoch](const auto& region) {
    MutexLock lock(&region->mu);
    return !region->closed && region->asked_epoch != epoch;
  });
}

void PutMemory::Close(uint64_t epoch) {
  AreaPtr area, own;
  {
    MutexLock lock(&mu_);
    if (epoch_ != epoch) return;
    area = std::move(area_);
    own = std::move(own_);
  }
  for (const AreaPtr& closed : {area, own}) {
    if (closed != nullptr) closed->Close();
  }
}

std::optional<PutMemory::Direct> PutMemory::Find(const LocalSession& session,
                                                 std::span<const std::byte> run) {
  const std::less_equal<const std::byte*> le;
  const uint64_t epoch = session.epoch();
  MutexLock lock(&mu_);
  if (area_ != nullptr && epoch_ == epoch && area_->Contains(run)) {
    return Direct{.region = local::kStagingRegion,
                  .offset = area_->OffsetOf(run),
                  .area = area_,
                  .registered = {}};
  }
  Direct direct;
  for (const auto& weak : regions_) {
    auto region = weak.lock();
    if (region == nullptr) continue;
    const std::span<const std::byte> all = region->mapping;
    if (!le(all.data(), run.data()) || !le(run.data() + run.size(), all.data() + all.size())) {
      continue;
    }
    // Each owner must learn when its memory is its own again, even a part that another owner has,
    // too.
    if (region->reused && !session.holds_deadlines()) return std::nullopt;
    {
      MutexLock lock_region(&region->mu);
      if (region->epoch != epoch) continue;
      if (direct.registered.empty()) {
        direct.region = region->region;
        direct.offset = static_cast<uint64_t>(run.data() - all.data());
      }
    }
    direct.registered.push_back(std::move(region));
  }
  if (direct.registered.empty()) return std::nullopt;
  return direct;
}

}  // namespace kvkeep::client
