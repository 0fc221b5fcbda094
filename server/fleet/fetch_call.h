// FetchCall: one Fetch of a PeerLink: asks another node for an image, and lets an ImageTaker have
// what comes.
//
// Owns itself: it is gone once all is reported.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <memory>

#include "server/fleet/image_taker.h"
#include "server/fleet/peer_link.h"

namespace kvkeep {

class FetchCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static void Start(std::shared_ptr<PeerLink> link, PeerLink::Begun begun, PeerRead read);

  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  FetchCall(std::shared_ptr<PeerLink> link, PeerLink::Begun begun, PeerRead read);

  const std::shared_ptr<PeerLink> link_;
  const PeerLink::Begun begun_;
  const PeerRead read_;
  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
  grpc::ByteBuffer sent_, frame_;
  ImageTaker image_;
  absl::Status refused_;  // why the frames were not taken
};

}  // namespace kvkeep
