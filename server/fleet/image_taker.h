// ImageTaker: puts the frames of one Fetch where the reader of the image wants them. It reports the
// header page, then each piece once it is complete; if the call fails, all that is left, with the
// error. It believes nothing that a frame says: what is not the next bytes of this image is
// DataLoss, and is not written. A header page that the reader does not take ends the image, too.
//
// One thread at a time.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <span>

#include "server/grpc/wire.h"
#include "tiers/remote/peer_source.h"

namespace kvkeep {

class ImageTaker {
 public:
  // `read` is borrowed.
  explicit ImageTaker(const PeerRead* read) : read_(*read), request_(read->request) {}

  // Takes a FetchFrame. An error: take no more.
  absl::Status Take(std::span<const WireRun> message);
  // Reports all that is not reported yet. REQUIRES: an error.
  void TellRest(const absl::Status& why);

  bool untold() const { return told_ == 0; }
  bool complete() const;
  uint64_t body_bytes() const;  // that came, behind the header page

 private:
  void TellPieces(uint64_t to, const absl::Status& status);
  void ZeroTheRest();
  uint64_t image_bytes() const { return request_.shape.blocks().value() * kBlockBytes; }

  const PeerRead& read_;
  const RemoteSource::ReadRequest& request_;
  uint64_t at_ = 0;    // bytes of the image that came
  uint64_t told_ = 0;  // bytes that were reported
};

}  // namespace kvkeep
