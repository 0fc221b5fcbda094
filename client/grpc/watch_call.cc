#include "client/grpc/watch_call.h"

#include "tiers/base/check.h"

namespace kvkeep::client {

using std::chrono::steady_clock;

WatchCall::WatchCall(v1::KvCache::Stub* stub, grpc::ClientContext* context,
                     const v1::WatchRequest* request)
    : context_(context) {
  stub->async()->Watch(context, request, this);
  AddHold();  // reads start outside of gRPC's callbacks, until Finish
  StartCall();
}

WatchCall::~WatchCall() {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(done_);
}

WatchCall::Read WatchCall::Next(v1::WatchEvents* message, steady_clock::time_point limit) {
  {
    MutexLock lock(&mu_);
    reading_ = true;
  }
  StartRead(message);
  if (!AwaitRead(limit)) {
    context_->TryCancel();  // the read ends soon
    AwaitRead(steady_clock::time_point::max());
    return Read::kLate;
  }
  MutexLock lock(&mu_);
  return read_ ? Read::kMessage : Read::kOver;
}

bool WatchCall::AwaitRead(steady_clock::time_point limit) {
  MutexLock lock(&mu_);
  while (reading_) {
    if (limit == steady_clock::time_point::max()) {
      changed_.Wait(&mu_);
      continue;
    }
    const auto left = limit - steady_clock::now();
    if (left.count() <= 0) return false;
    changed_.WaitFor(&mu_, left);
  }
  return true;
}

grpc::Status WatchCall::Finish() {
  RemoveHold();
  MutexLock lock(&mu_);
  while (!done_) changed_.Wait(&mu_);
  return status_;
}

void WatchCall::OnReadDone(bool ok) {
  MutexLock lock(&mu_);
  reading_ = false;
  read_ = ok;
  changed_.NotifyAll();
}

void WatchCall::OnDone(const grpc::Status& status) {
  MutexLock lock(&mu_);
  status_ = status;
  done_ = true;
  changed_.NotifyAll();
}

}  // namespace kvkeep::client
