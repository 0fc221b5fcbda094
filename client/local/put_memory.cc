#include "client/local/put_memory.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "client/local/test_point.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using local::Kind;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kUnregisterDeadline{5};

absl::StatusOr<std::shared_ptr<StagingArea>> AskFor(const LocalSessionPtr& session, uint64_t bytes,
                                                    LocalSession::Time deadline) {
  const uint64_t id = session->NextId();
  local::MessageWriter writer(static_cast<uint16_t>(Kind::kStaging), id);
  writer.Append(local::StagingRequest{.bytes = bytes});
  return Ask<std::shared_ptr<StagingArea>>(
      session, Kind::kStaging, id, writer, deadline,
      [&](LocalSession::Reply& reply) -> absl::StatusOr<std::shared_ptr<StagingArea>> {
        KVKEEP_ASSIGN_OR_RETURN(const auto said, ReadStruct<local::StagingReply>(reply));
        if (reply.descriptors.size() != 1) {
          return absl::InternalError("local: staging memory without its descriptor");
        }
        KVKEEP_ASSIGN_OR_RETURN(
            auto file, MappedFile::Map(reply.descriptors[0], true, said.bytes, said.bytes));
        // Page tables now rather than within the first put. Best effort: Linux 5.14.
        (void)madvise(file->memory().data(), file->memory().size(), MADV_POPULATE_WRITE);
        TestPoint("staging-mapped");
        return std::make_shared<StagingArea>(std::move(file));
      });
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
  // In the background. Refused while a put that ended by its deadline is still read: then the
  // session's end does it.
  session->Send(id, writer,
                {.kind = Kind::kUnregisterMemory,
                 .deadline = steady_clock::now() + kUnregisterDeadline,
                 .done = [](absl::StatusOr<LocalSession::Reply>) { return absl::OkStatus(); },
                 .late = nullptr,
                 .copied = nullptr});
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

absl::StatusOr<std::shared_ptr<StagingArea>> PutMemory::Area(const LocalSessionPtr& session,
                                                             uint64_t chunk_bytes,
                                                             LocalSession::Time deadline) {
  {
    MutexLock lock(&mu_);
    while (true) {
      if (area_ != nullptr && area_epoch_ == session->epoch() &&
          area_->memory().size() >= chunk_bytes) {
        return area_;
      }
      if (!asking_) break;
      const auto left = deadline - steady_clock::now();
      if (left <= left.zero())
        return absl::DeadlineExceededError("staging memory: still asked for");
      asked_.WaitFor(&mu_, left);
    }
    if (chunk_bytes > session->welcome().max_staging_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("staging memory: ", chunk_bytes, " bytes at once; the daemon's limit is ",
                       session->welcome().max_staging_bytes, " a session"));
    }
    if (area_ != nullptr && area_epoch_ == session->epoch() && !area_->Retire()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("staging memory: ", chunk_bytes, " bytes at once, and the session's ",
                       area_->memory().size(), " are in use, so that it cannot be replaced"));
    }
    area_ = nullptr;  // retired: nobody can name a range of it once there is a new one
    asking_ = true;
  }
  absl::StatusOr<std::shared_ptr<StagingArea>> area = AskForArea(session, chunk_bytes, deadline);
  MutexLock lock(&mu_);
  asking_ = false;
  asked_.NotifyAll();
  if (!area.ok()) return area.status();
  area_ = *area;  // though it may be too small for this chunk
  area_epoch_ = session->epoch();
  if (area_->memory().size() >= chunk_bytes) return area;
  return absl::ResourceExhaustedError(absl::StrCat(
      "staging memory: ", chunk_bytes, " bytes at once; the daemon has ", area_->memory().size(),
      " for this session, its limit is ", session->welcome().max_staging_bytes));
}

absl::StatusOr<std::shared_ptr<StagingArea>> PutMemory::AskForArea(const LocalSessionPtr& session,
                                                                   uint64_t chunk_bytes,
                                                                   LocalSession::Time deadline) {
  KVKEEP_ASSIGN_OR_RETURN(auto area, AskFor(session, 0, deadline));
  if (area->memory().size() >= chunk_bytes) return area;
  // Room for several of them, so that filling one goes on while another is read; each may want a
  // word beside it (LocalPut).
  const uint64_t with_word = RoundUp(chunk_bytes, kBlockBytes) + kBlockBytes;
  const uint64_t bytes =
      RoundUp(std::max(chunk_bytes, std::min(4 * with_word, session->welcome().max_staging_bytes)),
              kBlockBytes);
  area = nullptr;  // the daemon replaces it
  return AskFor(session, std::min(bytes, session->welcome().max_staging_bytes), deadline);
}

absl::StatusOr<std::shared_ptr<LocalRegion>> PutMemory::Register(const LocalSessionPtr& session,
                                                                 int fd,
                                                                 std::span<const std::byte> mapping,
                                                                 LocalSession::Time deadline) {
  auto region = std::make_shared<LocalRegion>();
  region->mapping = mapping;
  UniqueFd ours(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!ours.valid()) return absl::ErrnoToStatus(errno, "fd: cannot be duplicated");
  region->fd = GuardedFd(std::move(ours));
  KVKEEP_ASSIGN_OR_RETURN(const uint32_t number, AskToRegister(session, *region, deadline));
  Known(session, number, region.get());
  MutexLock lock(&mu_);
  std::erase_if(regions_, [](const auto& known) { return known.expired(); });
  regions_.push_back(region);
  return region;
}

void PutMemory::RegisterAgain(const LocalSessionPtr& session, LocalSession::Time deadline) {
  std::vector<std::shared_ptr<LocalRegion>> regions;
  {
    MutexLock lock(&mu_);
    for (const auto& weak : regions_) {
      if (auto region = weak.lock(); region != nullptr) regions.push_back(std::move(region));
    }
  }
  for (const auto& region : regions) {
    (void)region->in_use();  // lets go of connections that have ended
    // Not OK: puts from it are copied into staging memory, as any other.
    const absl::StatusOr<uint32_t> number = AskToRegister(session, *region, deadline);
    if (!number.ok()) continue;
    Known(session, *number, region.get());
  }
}

void PutMemory::Close(uint64_t epoch) {
  std::shared_ptr<StagingArea> area;
  {
    MutexLock lock(&mu_);
    if (area_epoch_ == epoch) area = std::move(area_);
  }
  if (area != nullptr) area->Close();
}

std::optional<PutMemory::Direct> PutMemory::Find(uint64_t epoch, std::span<const std::byte> run) {
  const std::less_equal<const std::byte*> le;
  MutexLock lock(&mu_);
  if (area_ != nullptr && area_epoch_ == epoch && area_->Contains(run)) {
    return Direct{.region = local::kStagingRegion,
                  .offset = area_->OffsetOf(run),
                  .area = area_,
                  .registered = nullptr};
  }
  for (const auto& weak : regions_) {
    auto region = weak.lock();
    if (region == nullptr) continue;
    const std::span<const std::byte> all = region->mapping;
    if (!le(all.data(), run.data()) || !le(run.data() + run.size(), all.data() + all.size())) {
      continue;
    }
    MutexLock lock_region(&region->mu);
    if (region->epoch != epoch) return std::nullopt;
    return Direct{.region = region->region,
                  .offset = static_cast<uint64_t>(run.data() - all.data()),
                  .area = nullptr,
                  .registered = region};
  }
  return std::nullopt;
}

}  // namespace kvkeep::client
