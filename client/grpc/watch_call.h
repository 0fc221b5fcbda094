// WatchCall: the stream of a Watch, for a thread that waits for one message after another.
// Internal.
//
// Nothing is read ahead: Next asks for the next message. One thread; cancelling the context from
// another one ends a Next that waits.
#pragma once

#include <chrono>
#include <string>

#include "kvkeep/v1/kvkeep.grpc.pb.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class WatchCall final : public grpc::ClientReadReactor<v1::WatchEvents> {
 public:
  enum class Read { kMessage, kOver, kLate };

  // All of them outlive this. Starts the call.
  WatchCall(v1::KvCache::Stub* stub, grpc::ClientContext* context, const v1::WatchRequest* request);
  ~WatchCall() override;  // REQUIRES: Finish has returned

  // Waits for the next message. kLate: `limit` has passed, and the call is cancelled.
  Read Next(v1::WatchEvents* message, std::chrono::steady_clock::time_point limit);
  // Waits until the call is over, which is soon after kOver, kLate or a cancel. Returns why.
  grpc::Status Finish();

 private:
  bool AwaitRead(std::chrono::steady_clock::time_point limit);  // returns false after `limit`
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  grpc::ClientContext* const context_;

  Mutex mu_;
  CondVar changed_;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool read_ ABSL_GUARDED_BY(mu_) = false;  // the last read brought a message
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
