// Helpers of the tests of the local path: a transport, blocking calls on it, keys and payloads.
#pragma once

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <functional>
#include <thread>

#include "client/local/local_transport.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

// Deadline of a call that gets no answer; the daemon must have received its request by then.
inline constexpr Deadline kUnanswered{2'000};

inline ChunkKey Key(const std::string& name) { return *ChunkKey::FromBytes(name); }

inline std::vector<std::byte> Bytes(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t x = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& b : bytes) {
    x = x * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(x >> 56);
  }
  return bytes;
}

inline int64_t Millis(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               since)
      .count();
}

// Polls, as the daemon and the background send no events.
template <typename F>
bool Eventually(F&& condition, int timeout_ms = 60'000) {
  for (int i = 0; i < timeout_ms / 2; ++i) {
    if (condition()) return true;
    // Returns whether the condition, which is about another thread, came true.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

// A transport to the listener of a socket, with one namespace.
struct Blocking {
  explicit Blocking(const std::string& socket, Deadline deadline = Deadline(10'000),
                    DaemonProcess::Watch watch = DaemonProcess::OpenPidfd)
      : transport(new LocalTransport({.socket = socket,
                                      .client_name = "test",
                                      .default_deadline = deadline,
                                      .backoff_min = Deadline(5),
                                      .backoff_max = Deadline(20),
                                      .watch_daemon = std::move(watch)})) {
    REQUIRE(transport->WaitFirstAttempt(Deadline(10'000)).ok());
    auto opened = transport->OpenNamespace(spec, Deadline(0));
    REQUIRE(opened.ok());
    ns = *opened;
  }

  template <typename T>
  T Wait(const std::function<void(absl::AnyInvocable<void(T) &&>)>& start) {
    Completion<T> completion;
    transport->RunBlocking([&] { start([&](T value) { completion.Set(std::move(value)); }); },
                           &completion);
    return completion.Take();
  }
  absl::StatusOr<LookupResult> Lookup(Keys keys, LookupOptions options = {}) {
    return Wait<absl::StatusOr<LookupResult>>(
        [&](auto done) { transport->Lookup(ns, spec, keys, options, std::move(done)); });
  }
  absl::StatusOr<Acquired> Acquire(Keys keys, AcquireOptions options = {}) {
    return Wait<absl::StatusOr<Acquired>>(
        [&](auto done) { transport->Acquire(ns, spec, keys, options, std::move(done)); });
  }
  absl::StatusOr<GetResult> Get(Keys keys, GetOptions options) {
    return Wait<absl::StatusOr<GetResult>>(
        [&](auto done) { transport->Get(ns, spec, keys, std::move(options), std::move(done)); });
  }
  absl::StatusOr<PutResult> Put(std::vector<PutChunk> chunks, PutOptions options = {}) {
    return Wait<absl::StatusOr<PutResult>>(
        [&](auto done) { transport->Put(ns, spec, std::move(chunks), options, std::move(done)); });
  }
  absl::StatusOr<uint64_t> Delete(Keys keys) {
    return Wait<absl::StatusOr<uint64_t>>(
        [&](auto done) { transport->Delete(ns, keys, {}, Deadline(0), std::move(done)); });
  }
  absl::Status Release(Lease lease) {
    return Wait<absl::Status>(
        [&](auto done) { transport->Release(std::move(lease), std::move(done)); });
  }
  // Gets one whole chunk into `back`.
  GetStatus GetOne(const ChunkKey& key, GetOptions options = {}) {
    options.allocate = [this](size_t, uint64_t bytes) {
      back.assign(bytes, std::byte{0});
      return std::span(back);
    };
    auto got = Get(absl::MakeSpan(&key, 1), std::move(options));
    last = got.ok() ? got->error : got.status();
    if (!got.ok()) return GetStatus::kUnfinished;
    outcome = got->chunks[0];
    return outcome.status;
  }
  PutStatus PutOne(const ChunkKey& key, std::span<const std::byte> payload,
                   PutOptions options = {}) {
    auto put = Put({{.key = key, .runs = {payload}}}, options);
    last = put.ok() ? put->error : put.status();
    if (!put.ok()) return PutStatus::kUnfinished;
    message = put->chunks[0].message;
    return put->chunks[0].status;
  }

  std::unique_ptr<LocalTransport> transport;
  const NamespaceSpec spec{.model = "m", .tokens_per_chunk = 16};
  std::shared_ptr<NamespaceBinding> ns;
  std::vector<std::byte> back;
  GetOutcome outcome;
  std::string message;
  absl::Status last;
};

}  // namespace kvkeep::client
