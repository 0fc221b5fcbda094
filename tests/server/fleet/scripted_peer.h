// ScriptedPeer: another node of a fleet, as a gRPC server by TLS on a loopback port, which answers
// as the test says. It checks nothing of what it is asked. All is thread-safe.
#pragma once

#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvkeep/v1/peer.grpc.pb.h"
#include "server/access/tls_identity.h"

namespace kvkeep {

class ScriptedPeer {
 public:
  // What it does with one Fetch.
  struct FetchAnswer {
    std::vector<std::string> frames;
    grpc::Status status;
    bool holds = false;  // after the frames, until it is released or the caller gives up
  };
  struct Script {
    std::function<grpc::Status(const v1::PeerHelloRequest&, v1::PeerHelloResponse*)> hello =
        [](const v1::PeerHelloRequest& request, v1::PeerHelloResponse* response) {
          response->set_version(request.max_version());
          return grpc::Status::OK;
        };
    std::function<grpc::Status(const v1::FindRequest&, v1::FindResponse*)> find =
        [](const v1::FindRequest&, v1::FindResponse*) { return grpc::Status::OK; };
    std::function<grpc::Status(const v1::OfferRequest&, v1::OfferResponse*)> offer =
        [](const v1::OfferRequest&, v1::OfferResponse*) { return grpc::Status::OK; };
    std::function<grpc::Status(const v1::SummaryRequest&, v1::SummaryResponse*)> summary =
        [](const v1::SummaryRequest&, v1::SummaryResponse*) { return grpc::Status::OK; };
    std::function<FetchAnswer()> fetch = [] { return FetchAnswer{}; };
    bool hello_hangs = false;
  };

  explicit ScriptedPeer(std::shared_ptr<TlsIdentity> identity);
  ~ScriptedPeer();

  std::string address() const;
  void Set(Script script);
  // Ends the held fetches with their status.
  void Release();
  // Breaks all connections, and listens no more.
  void Shutdown();

  int hellos() const;
  int fetches() const;
  int summaries() const;  // asked for
  int cancelled() const;  // fetches that the caller gave up
  int frames_sent() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace kvkeep
