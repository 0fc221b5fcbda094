#include "tests/server/fleet/scripted_peer.h"

#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <utility>

#include "server/grpc/tls_credentials.h"
#include "tiers/base/check.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

using ScriptedBase = v1::Peer::WithRawCallbackMethod_Fetch<v1::Peer::WithCallbackMethod_Hello<
    v1::Peer::WithCallbackMethod_Find<v1::Peer::WithCallbackMethod_Summary<
        v1::Peer::WithCallbackMethod_Offer<v1::Peer::Service>>>>>;

class ScriptedPeer::Service final : public ScriptedBase {
 public:
  using Context = grpc::CallbackServerContext;

  grpc::ServerUnaryReactor* Hello(Context* context, const v1::PeerHelloRequest* request,
                                  v1::PeerHelloResponse* response) override {
    const Script script = Count(&hellos);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    bool hangs = script.hello_hangs;
    {
      MutexLock lock(&mu);
      hangs = hangs && !ending;
      if (hangs) hanging.push_back(reactor);
    }
    if (!hangs) reactor->Finish(script.hello(*request, response));
    return reactor;
  }
  grpc::ServerUnaryReactor* Find(Context* context, const v1::FindRequest* request,
                                 v1::FindResponse* response) override {
    const Script script = Count(nullptr);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(script.find(*request, response));
    return reactor;
  }
  grpc::ServerUnaryReactor* Offer(Context* context, const v1::OfferRequest* request,
                                  v1::OfferResponse* response) override {
    const Script script = Count(nullptr);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(script.offer(*request, response));
    return reactor;
  }
  grpc::ServerUnaryReactor* Summary(Context* context, const v1::SummaryRequest* request,
                                    v1::SummaryResponse* response) override {
    const Script script = Count(&summaries);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(script.summary(*request, response));
    return reactor;
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(Context*, const grpc::ByteBuffer*) override {
    return new Sending(this, Count(&fetches).fetch());
  }

  Script Count(int* counter) {
    MutexLock lock(&mu);
    if (counter != nullptr) ++*counter;
    return script;
  }
  void Hold(std::function<void()> end) {
    MutexLock lock(&mu);
    held.push_back(std::move(end));
  }
  void Release() {
    std::vector<std::function<void()>> ends;
    {
      MutexLock lock(&mu);
      ends.swap(held);
    }
    for (const auto& end : ends) end();
  }

  // Ends what would keep the server from its end, as it waits for an answer to each unary call.
  void EndHellos() {
    std::vector<grpc::ServerUnaryReactor*> ends;
    {
      MutexLock lock(&mu);
      ending = true;
      ends.swap(hanging);
    }
    for (grpc::ServerUnaryReactor* const reactor : ends) reactor->Finish(grpc::Status::CANCELLED);
  }

  mutable Mutex mu;
  Script script ABSL_GUARDED_BY(mu);
  int hellos ABSL_GUARDED_BY(mu) = 0, fetches ABSL_GUARDED_BY(mu) = 0;
  int summaries ABSL_GUARDED_BY(mu) = 0;
  int cancelled ABSL_GUARDED_BY(mu) = 0, frames ABSL_GUARDED_BY(mu) = 0;
  std::vector<std::function<void()>> held ABSL_GUARDED_BY(mu);  // fetches
  std::vector<grpc::ServerUnaryReactor*> hanging ABSL_GUARDED_BY(mu);
  bool ending ABSL_GUARDED_BY(mu) = false;

 private:
  // One Fetch. Owned by gRPC until OnDone, and by what holds it.
  class Sending final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
   public:
    Sending(Service* service, FetchAnswer answer) : service_(*service), answer_(std::move(answer)) {
      Next();
    }
    void OnWriteDone(bool ok) override { ok ? Next() : End(); }
    void OnCancel() override {
      {
        MutexLock lock(&service_.mu);
        ++service_.cancelled;
      }
      End();
    }
    void OnDone() override { self_.reset(); }

   private:
    void Next() {
      if (next_ == answer_.frames.size()) {
        if (!answer_.holds) return End();
        return service_.Hold([self = self_] { self->End(); });
      }
      const grpc::Slice slice(answer_.frames[next_++]);
      frame_ = grpc::ByteBuffer(&slice, 1);
      {
        MutexLock lock(&service_.mu);
        ++service_.frames;
      }
      StartWrite(&frame_);
    }
    void End() {
      if (!ended_.exchange(true)) Finish(answer_.status);
    }

    Service& service_;
    const FetchAnswer answer_;
    std::shared_ptr<Sending> self_{this};
    size_t next_ = 0;
    grpc::ByteBuffer frame_;
    std::atomic<bool> ended_{false};
  };
};

namespace {

// gRPC 1.51 may free the queue of all callbacks twice if every channel and server that used it has
// ended and another one begins. A daemon's own server uses it as long as the daemon runs, and this
// one as long as the test.
void KeepCallbackQueue() {
  static v1::Peer::CallbackService service;
  static const std::unique_ptr<grpc::Server> server = [] {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    return builder.BuildAndStart();
  }();
  KVKEEP_CHECK(server != nullptr);
}

}  // namespace

ScriptedPeer::ScriptedPeer(std::shared_ptr<TlsIdentity> identity)
    : service_(std::make_unique<Service>()),
      credentials_(MakeTlsServerCredentials(std::move(identity))) {
  KeepCallbackQueue();
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials_, &port_);
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  KVKEEP_CHECK(server_ != nullptr && port_ > 0);
}

ScriptedPeer::~ScriptedPeer() { Shutdown(); }

std::string ScriptedPeer::address() const { return "127.0.0.1:" + std::to_string(port_); }

void ScriptedPeer::Set(Script script) {
  MutexLock lock(&service_->mu);
  service_->script = std::move(script);
}

void ScriptedPeer::Release() { service_->Release(); }

void ScriptedPeer::Shutdown() {
  if (server_ == nullptr) return;
  service_->EndHellos();
  server_->Shutdown(std::chrono::system_clock::now());  // cancels what is under way
  Release();
  server_.reset();
}

int ScriptedPeer::hellos() const {
  MutexLock lock(&service_->mu);
  return service_->hellos;
}
int ScriptedPeer::fetches() const {
  MutexLock lock(&service_->mu);
  return service_->fetches;
}
int ScriptedPeer::summaries() const {
  MutexLock lock(&service_->mu);
  return service_->summaries;
}
int ScriptedPeer::cancelled() const {
  MutexLock lock(&service_->mu);
  return service_->cancelled;
}
int ScriptedPeer::frames_sent() const {
  MutexLock lock(&service_->mu);
  return service_->frames;
}

}  // namespace kvkeep
