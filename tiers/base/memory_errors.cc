#include "tiers/base/memory_errors.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/checksum.h"
#include "tiers/base/page_bytes.h"

namespace kvkeep {

struct MemoryWatch::State {
  std::vector<Range> ranges;
  UniqueFd directory;
  std::atomic<uint64_t> errors{0};
  // The first errors. Holds file + 1, so that zero means not written yet.
  struct Met {
    std::atomic<uint64_t> file{0}, offset{0};
  };
  std::array<Met, kMaxNotes> met{};
  uint64_t taken = 0;
};

namespace {

constexpr char kNotePrefix[] = "arena.error-";
constexpr size_t kPrefixBytes = sizeof(kNotePrefix) - 1;
constexpr size_t kMaxNameBytes = kPrefixBytes + 2 * 16 + 2;

// One thread's guard, which the handler jumps back to.
struct Guard {
  uintptr_t begin = 0, end = 0;
  sigjmp_buf back;
};
thread_local Guard* volatile guard_of_thread = nullptr;

std::array<std::atomic<MemoryWatch::State*>, MemoryWatch::kMaxWatches> watches{};
struct sigaction handler_before {};

// Appends to `at` and returns the end. Safe in a signal handler.
char* AppendHex(char* at, uint64_t value) {
  char digits[16];
  size_t count = 0;
  do {
    digits[count++] = "0123456789abcdef"[value % 16];
    value /= 16;
  } while (value != 0);
  while (count > 0) *at++ = digits[--count];
  return at;
}

// Writes the name, ended by a zero.
void WriteName(const MemoryErrorNote& note, char* at) {
  std::memcpy(at, kNotePrefix, kPrefixBytes);
  at = AppendHex(at + kPrefixBytes, note.file);
  *at++ = '-';
  *AppendHex(at, note.offset) = '\0';
}

// Returns whether the memory that the kernel gave up reaches into the guard's: a page, or a huge
// page of hugetlbfs, whose first address the kernel may tell.
bool Reaches(const siginfo_t& info, const Guard& guard) {
  const bool says_size = info.si_code == BUS_MCEERR_AR || info.si_code == BUS_MCEERR_AO;
  const int bits = says_size ? info.si_addr_lsb : 0;
  const uintptr_t told = bits > 0 && bits < 48 ? uintptr_t{1} << bits : 1;
  const uintptr_t bytes = std::max<uintptr_t>(told, PageBytes());
  const uintptr_t begin = reinterpret_cast<uintptr_t>(info.si_addr) & ~(bytes - 1);
  return begin < guard.end && guard.begin < begin + bytes;
}

// Notes an error if the address is in watched memory. Called by the handler.
void NoteError(uintptr_t address) {
  for (const auto& watch : watches) {
    MemoryWatch::State* const state = watch.load(std::memory_order_acquire);
    if (state == nullptr) continue;
    for (const MemoryWatch::Range& range : state->ranges) {
      const auto begin = reinterpret_cast<uintptr_t>(range.memory.data());
      if (address < begin || address - begin >= range.memory.size()) continue;
      const uint64_t before = state->errors.fetch_add(1, std::memory_order_relaxed);
      if (before >= MemoryWatch::kMaxNotes) continue;
      const uint64_t offset = range.offset + (address - begin);
      state->met[before].offset.store(offset, std::memory_order_relaxed);
      state->met[before].file.store(range.file + 1, std::memory_order_release);
      if (!state->directory.valid()) continue;
      char name[kMaxNameBytes + 1];
      WriteName({range.file, offset}, name);
      // A link is there as a whole or not at all, on hugetlbfs too, and its name says it all.
      [[maybe_unused]] const int made = symlinkat("-", state->directory.get(), name);
    }
  }
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const int error_before = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const bool sent = info->si_code <= 0;  // by kill(2)
  if (!sent) NoteError(address);
  Guard* const guard = guard_of_thread;
  if (!sent && guard != nullptr && Reaches(*info, *guard)) siglongjmp(guard->back, 1);
  errno = error_before;
  if (info->si_code == BUS_MCEERR_AO) return;  // told of; nobody has touched it
  const struct sigaction& before = handler_before;
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    return before.sa_sigaction(signal, info, context);
  }
  // Acts as if nobody handled it: the access is repeated at the return, a sent signal by raise.
  sigaction(SIGBUS, &before, nullptr);
  if (sent) raise(SIGBUS);
}

void InstallHandler() {
  static const bool installed = [] {
    PageBytes();  // asks the kernel, which the handler must not
    struct sigaction action {};
    action.sa_sigaction = &OnBusError;
    // SIGBUS is not masked while handled, as the way back from a guard is a jump.
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &handler_before) == 0;
  }();
  static_cast<void>(installed);
}

// Does not use memcpy(3), as a jump must not leave a sanitizer's version of it.
void CopyWords(std::byte* to, std::span<const std::byte> from) {
  size_t at = 0;
  if (reinterpret_cast<uintptr_t>(from.data()) % sizeof(uint64_t) == 0 &&
      reinterpret_cast<uintptr_t>(to) % sizeof(uint64_t) == 0) {
    for (; at + sizeof(uint64_t) <= from.size(); at += sizeof(uint64_t)) {
      *reinterpret_cast<uint64_t*>(to + at) =
          *reinterpret_cast<const volatile uint64_t*>(from.data() + at);
    }
  }
  for (; at < from.size(); ++at) {
    to[at] = *static_cast<const volatile std::byte*>(from.data() + at);
  }
}

// Runs `read`, which touches `memory` and needs no clean-up. Returns false if it was left half-way.
template <typename Read>
__attribute__((noinline)) bool Guarded(std::span<const std::byte> memory, const Read& read) {
  InstallHandler();
  KVKEEP_CHECK(guard_of_thread == nullptr);
  Guard guard;
  guard.begin = reinterpret_cast<uintptr_t>(memory.data());
  guard.end = reinterpret_cast<uintptr_t>(memory.data() + memory.size());
#ifdef __SANITIZE_THREAD__
  constexpr int kWithMask = 1;  // its handler, before ours, has all signals masked
#else
  constexpr int kWithMask = 0;  // ours has none
#endif
  if (sigsetjmp(guard.back, kWithMask) != 0) {
    guard_of_thread = nullptr;
    return false;
  }
  guard_of_thread = &guard;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  read();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  guard_of_thread = nullptr;
  return true;
}

}  // namespace

std::string MemoryErrorNote::ToName() const {
  char name[kMaxNameBytes + 1];
  WriteName(*this, name);
  return name;
}

std::optional<MemoryErrorNote> MemoryErrorNote::FromName(const std::string& name) {
  if (name.compare(0, kPrefixBytes, kNotePrefix) != 0) return std::nullopt;
  MemoryErrorNote note;
  const char* const end = name.data() + name.size();
  auto parsed = std::from_chars(name.data() + kPrefixBytes, end, note.file, 16);
  if (parsed.ec != std::errc() || parsed.ptr == end || *parsed.ptr != '-') return std::nullopt;
  parsed = std::from_chars(parsed.ptr + 1, end, note.offset, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return note;
}

MemoryWatch::MemoryWatch(std::vector<Range> ranges, UniqueFd directory)
    : state_(new State{std::move(ranges), std::move(directory)}) {
  InstallHandler();
  for (auto& watch : watches) {
    State* none = nullptr;
    if (watch.compare_exchange_strong(none, state_, std::memory_order_acq_rel)) break;
  }
}

MemoryWatch::~MemoryWatch() {
  for (auto& watch : watches) {
    State* self = state_;
    if (watch.compare_exchange_strong(self, nullptr, std::memory_order_acq_rel)) break;
  }
  delete state_;
}

std::vector<MemoryErrorNote> MemoryWatch::TakeNew() {
  std::vector<MemoryErrorNote> notes;
  while (state_->taken < kMaxNotes) {
    State::Met& met = state_->met[state_->taken];
    const uint64_t file = met.file.load(std::memory_order_acquire);
    if (file == 0) break;
    ++state_->taken;
    const MemoryErrorNote note{file - 1, met.offset.load(std::memory_order_relaxed)};
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  }
  return notes;
}

void HearOfMemoryErrorsEarly() {
  InstallHandler();
  // Kernels without CONFIG_MEMORY_FAILURE refuse, and find no errors either.
  prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0);
}

uint64_t MemoryWatch::errors() const { return state_->errors.load(std::memory_order_relaxed); }

std::optional<uint64_t> GuardedXxh3(std::span<const std::byte> memory) {
  uint64_t digest = 0;
  const bool whole = Guarded(memory, [&] { digest = Xxh3(memory); });
  return whole ? std::optional(digest) : std::nullopt;
}

bool GuardedCopy(std::byte* to, std::span<const std::byte> from) {
  return Guarded(from, [&] { CopyWords(to, from); });
}

}  // namespace kvkeep
