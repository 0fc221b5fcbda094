#include "tiers/io/uring_ring.h"

#include <absl/strings/str_cat.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iterator>
#include <limits>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/io/errno_status.h"

namespace kvkeep {
namespace {

constexpr uint64_t kWakeTag = std::numeric_limits<uint64_t>::max();
constexpr long kBriefNanos = 1'000'000;

// As linux/io_uring.h of 6.13, which is newer than our headers.
constexpr unsigned kRegisterCloneBuffers = 30;
constexpr uint32_t kCloneReplaces = 1u << 1;
struct CloneBuffers {
  uint32_t src_fd, flags, src_off, dst_off, nr, pad[3];
};
static_assert(sizeof(CloneBuffers) == 32);

struct FlagSet {
  unsigned flags;
  const char* name;
};
// Best first. SUBMIT_ALL: one refused entry does not hold up those behind it.
constexpr FlagSet kFlagSets[] = {
    {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
     "SINGLE_ISSUER|DEFER_TASKRUN"},                                        // 6.1
    {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, "COOP_TASKRUN"},  // 5.19
    {0, "plain"},
};

absl::Status SetUpError(int error) {
  switch (error) {
    case ENOSYS:
      return absl::UnavailableError("io_uring: this kernel or sandbox has none (ENOSYS)");
    case EPERM:
    case EACCES:
      return absl::UnavailableError(
          "io_uring: not permitted; see the sysctl kernel.io_uring_disabled and the container's "
          "seccomp profile");
    case ENOMEM:
      return absl::ResourceExhaustedError(
          "io_uring: over the locked-memory limit; raise LimitMEMLOCK (ulimit -l)");
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError("io_uring: out of descriptors; raise LimitNOFILE");
    default:
      return absl::UnavailableError(
          absl::StrCat("io_uring: ", ErrnoStatus(error, "set-up").message()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<UringRing>> UringRing::Create(uint32_t entries,
                                                             uint32_t buffer_slots) {
  std::unique_ptr<UringRing> ring(new UringRing);
  KVKEEP_RETURN_IF_ERROR(ring->SetUp(entries));
  KVKEEP_RETURN_IF_ERROR(ring->Probe());
  // A child would share the ring with us: it must not even see it.
  const int dontfork = io_uring_ring_dontfork(&ring->ring_);
  if (dontfork != 0) return SetUpError(-dontfork);

  ring->wake_fd_ = eventfd(0, EFD_CLOEXEC);
  if (ring->wake_fd_ < 0) return SetUpError(errno);
  const int sparse = io_uring_register_buffers_sparse(&ring->ring_, buffer_slots);  // 5.19
  if (sparse != 0) {
    ring->buffers_status_ = ErrnoStatus(-sparse, "io_uring: no table for registered buffers");
  }
  return ring;
}

absl::StatusOr<std::unique_ptr<UringRing>> UringRing::CreateForBuffers(uint32_t buffer_slots) {
  std::unique_ptr<UringRing> ring(new UringRing);
  constexpr unsigned kEntries = 1;  // the kernel insists on one
  const int made = io_uring_queue_init(kEntries, &ring->ring_, 0);
  if (made != 0) return SetUpError(-made);
  ring->ring_made_ = true;
  const int dontfork = io_uring_ring_dontfork(&ring->ring_);
  if (dontfork != 0) return SetUpError(-dontfork);
  const int sparse = io_uring_register_buffers_sparse(&ring->ring_, buffer_slots);
  if (sparse != 0) return ErrnoStatus(-sparse, "io_uring: no table for registered buffers");
  return ring;
}

UringRing::~UringRing() {
  if (ring_made_) io_uring_queue_exit(&ring_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

absl::Status UringRing::SetUp(uint32_t entries) {
  int error = 0;
  for (const FlagSet& set : kFlagSets) {
    io_uring_params params = {};
    params.flags = set.flags;
    error = -io_uring_queue_init_params(entries, &ring_, &params);
    if (error == EINVAL) continue;  // flags that this kernel does not know
    if (error != 0) break;
    ring_made_ = true;
    features_ = set.name;
    max_in_flight_ = params.cq_entries - 1;  // one for the wake
    return absl::OkStatus();
  }
  return SetUpError(error);
}

absl::Status UringRing::Probe() {
  // NODROP: the kernel never drops a completion; EXT_ARG: waits with a timeout (5.11).
  constexpr unsigned kNeeded = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_SUBMIT_STABLE;
  if ((ring_.features & kNeeded) != kNeeded) {
    return absl::UnavailableError("io_uring: this kernel's is too old, 5.11 is needed");
  }
  std::unique_ptr<io_uring_probe, decltype(&io_uring_free_probe)> probe(
      io_uring_get_probe_ring(&ring_), &io_uring_free_probe);
  for (const int op :
       {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED}) {
    if (probe == nullptr || !io_uring_opcode_supported(probe.get(), op)) {
      return absl::UnavailableError(absl::StrCat("io_uring: operation ", op, " is missing"));
    }
  }
  return absl::OkStatus();
}

void UringRing::Prepare(const Io& io) {
  KVKEEP_CHECK(io.tag != kWakeTag);
  KVKEEP_CHECK(io.bytes <= static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  const auto bytes = static_cast<unsigned>(io.bytes);
  io_uring_sqe* const sqe = NextSqe();
  if (io.buffer_slot) {
    const int slot = static_cast<int>(*io.buffer_slot);
    io.read ? io_uring_prep_read_fixed(sqe, io.fd, io.data, bytes, io.offset, slot)
            : io_uring_prep_write_fixed(sqe, io.fd, io.data, bytes, io.offset, slot);
  } else {
    io.read ? io_uring_prep_read(sqe, io.fd, io.data, bytes, io.offset)
            : io_uring_prep_write(sqe, io.fd, io.data, bytes, io.offset);
  }
  io_uring_sqe_set_data64(sqe, io.tag);
}

void UringRing::ArmWake() {
  io_uring_sqe* const sqe = NextSqe();
  io_uring_prep_read(sqe, wake_fd_, &wake_value_, sizeof(wake_value_), 0);
  io_uring_sqe_set_data64(sqe, kWakeTag);
  wake_armed_ = true;
}

io_uring_sqe* UringRing::NextSqe() {
  while (true) {
    if (io_uring_sqe* const sqe = io_uring_get_sqe(&ring_)) return sqe;
    // Full: hand over what is there. Completions are kept for the next Enter's caller.
    EnterOnce(Wait::kNo);
    Collect(&collected_);
  }
}

void UringRing::Enter(Wait wait, std::vector<Completion>* completions) {
  if (!wake_armed_) ArmWake();
  // Completions collected on the way are an event already.
  EnterOnce(collected_.empty() ? wait : Wait::kNo);
  completions->insert(completions->end(), collected_.begin(), collected_.end());
  collected_.clear();
  Collect(completions);
}

int UringRing::EnterOnce(Wait wait) {
  int result = 0;
  switch (wait) {
    case Wait::kNo:
      result = io_uring_submit_and_get_events(&ring_);
      break;
    case Wait::kUntilEvent:
      result = io_uring_submit_and_wait(&ring_, 1);
      break;
    case Wait::kBriefly: {
      io_uring_cqe* unused = nullptr;
      __kernel_timespec timeout = {.tv_sec = 0, .tv_nsec = kBriefNanos};
      result = io_uring_submit_and_wait_timeout(&ring_, &unused, 1, &timeout, nullptr);
      break;
    }
  }
  if (result >= 0) return result;
  switch (-result) {
    case EINTR:  // the caller's next turn does it
    case ETIME:
      return 0;
    case EAGAIN:  // the kernel is short of memory for requests
    case ENOMEM:
    case EBUSY: {  // completions must be taken first; the caller does
      const timespec pause = {.tv_sec = 0, .tv_nsec = kBriefNanos};
      nanosleep(&pause, nullptr);  // for what is in flight to end; the next turn tries again
      return 0;
    }
    default:
      // EBADF, EBADFD, EFAULT, EINVAL, ENXIO, EEXIST, EOPNOTSUPP, EBADR: our own misuse.
      std::fprintf(stderr, "io_uring_enter: errno %d\n", -result);
      KVKEEP_CHECK(!"io_uring_enter refused");
  }
  return 0;
}

void UringRing::Collect(std::vector<Completion>* completions) {
  unsigned head;
  unsigned seen = 0;
  io_uring_cqe* cqe;
  io_uring_for_each_cqe(&ring_, head, cqe) {
    ++seen;
    if (cqe->user_data != kWakeTag) {
      completions->push_back({cqe->user_data, cqe->res});
      continue;
    }
    const int result = cqe->res;
    KVKEEP_CHECK(result == sizeof(wake_value_) || result == -EINTR || result == -EAGAIN ||
                 result == -ECANCELED);
    wake_armed_ = false;
  }
  io_uring_cq_advance(&ring_, seen);
}

absl::Status UringRing::RegisterBuffer(uint32_t slot, std::span<std::byte> memory) {
  KVKEEP_RETURN_IF_ERROR(buffers_status_);
  const iovec vec = {.iov_base = memory.data(), .iov_len = memory.size()};
  const __u64 tag = 0;
  const int result = io_uring_register_buffers_update_tag(&ring_, slot, &vec, &tag, 1);
  if (result == 1) return absl::OkStatus();
  const std::string what = absl::StrCat("io_uring: register a buffer of ", memory.size(), " bytes");
  switch (-result) {
    case ENOMEM:
      return absl::ResourceExhaustedError(
          absl::StrCat(what, ": over the locked-memory limit; raise LimitMEMLOCK (ulimit -l)"));
    case EFAULT:
    case EOPNOTSUPP:
      return absl::FailedPreconditionError(
          absl::StrCat(what, ": must be mapped, writable, and anonymous, tmpfs or hugetlbfs"));
    default:
      return ErrnoStatus(result < 0 ? -result : EIO, what);
  }
}

absl::Status UringRing::TakeBuffer(uint32_t slot, int from_ring_fd, uint32_t from_slot) {
  KVKEEP_RETURN_IF_ERROR(buffers_status_);
  // Slots only grow: some kernels drop the buffers behind those that are replaced.
  CloneBuffers clone{.src_fd = static_cast<uint32_t>(from_ring_fd),
                     .flags = kCloneReplaces,
                     .src_off = from_slot,
                     .dst_off = slot,
                     .nr = 1};
  if (syscall(__NR_io_uring_register, ring_.ring_fd, kRegisterCloneBuffers, &clone, 1) == 0) {
    return absl::OkStatus();
  }
  if (errno == EINVAL) {
    return absl::UnavailableError("io_uring: this kernel cannot share registered buffers");
  }
  return ErrnoStatus(errno, "io_uring: take over a registered buffer");
}

void UringRing::Wake() {
  const uint64_t one = 1;
  ssize_t written;
  do {
    written = write(wake_fd_, &one, sizeof(one));
  } while (written < 0 && errno == EINTR);
  KVKEEP_CHECK(written == sizeof(one));
}

}  // namespace kvkeep
