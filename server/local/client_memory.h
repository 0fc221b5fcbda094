// Memory of a client that puts are read from: its staging memory, or a memfd of its own that it
// registered. Thread-safe to read; the client may write it at any time.
#pragma once

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "server/local/context.h"
#include "server/local/staging_share.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class ClientMemory {
 public:
  virtual ~ClientMemory() = default;
  virtual uint64_t bytes() const = 0;
  // Gives the bytes from `offset` on, in order, each run good while it is given. OutOfRange: the
  // memory was cut by its owner. REQUIRES: offset + bytes <= this->bytes().
  using Give = absl::FunctionRef<void(std::span<const std::byte> run)>;
  virtual absl::Status Read(uint64_t offset, uint64_t bytes, Give give) const = 0;
  // Like Read, but by a system call, in runs that fit a cache. While the owner punches a hole, a
  // touch of a mapping waits until that is done, 0.2 s for 512 MiB; a call does not.
  virtual absl::Status ReadByCall(uint64_t offset, uint64_t bytes, Give give) const = 0;

 protected:
  // `what`: for the error.
  static absl::Status ReadFile(const char* what, const UniqueFd& file, uint64_t offset,
                               uint64_t bytes, Give give);
};

// A memfd made here for one session; the client maps it read-write, the daemon read-only. It cannot
// shrink, so reading it cannot fault: where its client punched a hole, a page is made anew. If that
// can fail (LocalLimits::staging_by_calls), the daemon does not map it. When the last user is gone,
// the copy executor frees its pages, even while the client still maps it: pages that the client
// touches later are its own.
class StagingMemory final : public ClientMemory {
 public:
  // Makes the pages present on the copy executor, slice by slice; `done` is called there, with the
  // memory, or ResourceExhausted (the limit of all sessions or of its tenant's, no memory or
  // descriptor). The error may come at once. Thread-safe.
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<StagingMemory>>) &&>;
  static void Make(std::shared_ptr<const LocalContext> context,
                   std::shared_ptr<StagingAccount> account, const StagingWish& wish, Done done);
  // Gives `last` up, and calls `freed` on the copy executor when its pages are freed. REQUIRES:
  // `last` is the only reference.
  static void GiveUp(std::shared_ptr<StagingMemory> last, absl::AnyInvocable<void() &&> freed);
  ~StagingMemory() override;
  StagingMemory(const StagingMemory&) = delete;
  StagingMemory& operator=(const StagingMemory&) = delete;

  uint64_t bytes() const override { return bytes_; }
  absl::Status Read(uint64_t offset, uint64_t bytes, Give give) const override;
  absl::Status ReadByCall(uint64_t offset, uint64_t bytes, Give give) const override;
  // Returns the word that the client stored there last; the client's earlier writes are visible
  // too. None: the word is changing, or cannot be read. REQUIRES: offset is a multiple of 8, below
  // bytes().
  std::optional<uint64_t> ReadWord(uint64_t offset) const;
  // Returns a read-write descriptor for the client.
  absl::StatusOr<UniqueFd> Duplicate() const;

 private:
  StagingMemory(std::shared_ptr<const LocalContext> context,
                std::shared_ptr<StagingAccount> account, uint64_t bytes);
  static absl::StatusOr<std::unique_ptr<StagingMemory>> Create(
      std::shared_ptr<const LocalContext> context, std::shared_ptr<StagingAccount> account,
      uint64_t bytes);
  // ResourceExhausted: over the limit of all sessions or of the tenant.
  absl::Status CheckLimits() const;
  static void Populate(std::shared_ptr<StagingMemory> memory, uint64_t from, Done done);
  absl::Status Map();
  absl::Status MakePages(uint64_t from, uint64_t bytes);
  std::optional<uint64_t> ReadWordByCall(uint64_t offset) const;
  static void Free(std::unique_ptr<StagingMemory> memory, uint64_t from);

  const std::shared_ptr<const LocalContext> context_;
  const std::shared_ptr<StagingAccount> account_;
  const uint64_t bytes_;
  const uint64_t bytes_of_all_;     // with this one, when it was made
  const uint64_t bytes_of_tenant_;  // likewise
  UniqueFd fd_;
  std::byte* mapped_ = nullptr;  // null: it is read by calls only
  absl::AnyInvocable<void() &&> freed_;
};

// A memfd or shm file of the client, read with pread and never mapped, as its owner can cut it.
class RegisteredMemory final : public ClientMemory {
 public:
  // InvalidArgument: not memory (a file that could block), not readable, or shorter than `bytes`.
  static absl::StatusOr<std::shared_ptr<RegisteredMemory>> Open(
      std::shared_ptr<const LocalContext> context, ExpendableFd fd, uint64_t bytes);
  ~RegisteredMemory() override;

  uint64_t bytes() const override { return bytes_; }
  absl::Status Read(uint64_t offset, uint64_t bytes, Give give) const override {
    return ReadByCall(offset, bytes, give);
  }
  absl::Status ReadByCall(uint64_t offset, uint64_t bytes, Give give) const override;

 private:
  RegisteredMemory(std::shared_ptr<const LocalContext> context, ExpendableFd fd, uint64_t bytes);

  const std::shared_ptr<const LocalContext> context_;
  const ExpendableFd fd_;  // its pages, too, may take a while to be freed
  const uint64_t bytes_;
};

}  // namespace kvkeep
