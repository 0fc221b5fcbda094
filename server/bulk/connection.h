// BulkConnection: one client of the bulk door: its frames in and out, and the calls that it makes,
// one after the other (proto/bulk/frame.h).
//
// A client that breaks the protocol is told why, as far as it reads that, and cut off. One that
// keeps a call waiting for limits.stall_timeout, or has not said Hello after kHelloTimeout, is,
// too. Every call asks again whether the client may still speak here (BulkCaller).
//
// All methods run on the loop's thread. The store's answers come on any thread and are posted
// there.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/bulk/frame.h"
#include "server/bulk/bulk_put.h"
#include "server/bulk/byte_stream.h"
#include "server/bulk/frame_queue.h"
#include "server/observe/server_state.h"
#include "server/requests/get_frames.h"
#include "server/sockets/event_loop.h"
#include "tiers/store/store.h"

namespace kvkeep {

// Decides which tenant a connection speaks as, again for every call.
class BulkCaller {
 public:
  virtual ~BulkCaller() = default;
  virtual absl::StatusOr<TenantId> Admit(const ShownCertificate& shown,
                                         const std::string& authorization) = 0;
  virtual std::string name() const = 0;  // for logs
};

// Memory for the messages of all connections. Thread-safe.
struct BulkMemory {
  static constexpr uint64_t kMost = 128 * kMiB;
  std::atomic<uint64_t> bytes{0};
};

class BulkConnection final : public std::enable_shared_from_this<BulkConnection> {
 public:
  static constexpr size_t kMaxResults = 64;  // of a put, waiting to be sent
  static constexpr std::chrono::seconds kHelloTimeout{10}, kLinger{2};

  struct Deps {  // all but the loop are borrowed
    Store* store = nullptr;
    ServerState* state = nullptr;
    BulkMemory* memory = nullptr;
    std::span<std::byte> scratch;  // of the loop's thread, for bytes that nobody wants
    std::shared_ptr<EventLoop> loop;
    std::chrono::milliseconds max_age{0};        // then it takes no further call; 0: any
    std::function<void(uint64_t id)> on_closed;  // destroy it later, not inside this call
  };
  BulkConnection(Deps deps, uint64_t id, std::unique_ptr<ByteStream> stream,
                 std::unique_ptr<BulkCaller> caller);
  ~BulkConnection();

  // ResourceExhausted: the kernel cannot watch more sockets.
  absl::Status Start();
  void OnEvent(uint32_t events);
  void OnTick(MonotonicTime now);
  // Takes no further call: closes now, or when the call under way has ended.
  void EndSoon();
  void Close();
  bool closed() const { return phase_ == Phase::kClosed; }

 private:
  enum class Phase : uint8_t {
    kHello,      // not greeted yet
    kIdle,       // between calls
    kGetting,    // frames are sent
    kPutting,    // chunks are received
    kEnding,     // the reason of the end is sent
    kLingering,  // it was sent; what comes is thrown away, so that the client can read it
    kClosed,
  };
  struct Result {
    v1::PutResult result;
    bool ready = false;
  };
  // A part of BulkMemory, for the message that comes in and the call made of it.
  class Share;

  // Does what can be done now, and has the loop watch for what is needed next.
  void Run();
  void RunLater();  // on any thread
  void Settle();
  bool may_read() const;
  bool client_is_due() const;

  // connection_input.cc. Each returns whether something was done.
  bool ReadSome();
  bool Linger();
  bool UseBuffered();
  void AddPlaces();
  void Distribute(size_t bytes);
  void TakeOfFrame(size_t bytes);
  absl::Status TakeHead();
  absl::Status CheckHead(const bulk::FrameHead& head) const;
  bool has_message() const { return head_.has_value() && message_came_ == message_.size(); }
  std::span<std::byte> message_left();

  bool ServeCall();
  bool WriteSome();
  // Serves the frame whose message is complete. An error ends the connection.
  absl::Status OnFrame();
  absl::Status Hello();
  absl::Status BeginGet();
  absl::StatusOr<GetPlan> PlanOf(const v1::GetRequest& request);
  absl::Status OpenPut();
  absl::Status EndOfPayload();
  void OnDurable(uint64_t call, const v1::PutResult& result);
  // Ends the call: the client may make another one. By value, as an error of the call goes with it.
  void EndCall(absl::Status status);
  // Says why, and takes nothing more of what the client sends.
  void Fail(const absl::Status& why);
  void NoteCall(const absl::Status& status);
  void DropCall();
  void AddEnd(const absl::Status& status);

  const Deps deps_;
  const uint64_t id_;
  const std::unique_ptr<ByteStream> stream_;
  const std::unique_ptr<BulkCaller> caller_;
  const MonotonicTime opened_;
  std::string authorization_;
  Phase phase_ = Phase::kHello;
  bool ending_soon_ = false;

  // Bytes that came: those read ahead, from read_ to filled_ of the buffer; the frame in progress.
  std::vector<std::byte> buffer_;
  size_t read_ = 0, filled_ = 0;
  std::optional<bulk::FrameHead> head_;
  std::string message_;  // of its size from the head on
  size_t message_came_ = 0;
  bool in_payload_ = false;
  std::vector<iovec> places_;
  size_t wanted_ = 0;  // bytes of the places that are the frame's, without the buffer
  std::unique_ptr<Share> share_;

  FrameQueue out_;
  // The call under way.
  std::shared_ptr<GetFrames> get_;
  std::unique_ptr<BulkPut> put_;
  std::deque<Result> results_;  // of the put, in the order of chunks
  bool put_done_ = false;       // the client sends no more chunks
  MonotonicTime call_began_{0};
  size_t call_keys_ = 0;
  uint64_t call_ = 0;  // counts calls: answers to earlier ones are known as such

  MonotonicTime moved_;   // when bytes last moved, or the client became due
  MonotonicTime failed_;  // when the connection was given up
  bool due_ = false;
  uint32_t watched_ = 0;
};

}  // namespace kvkeep
