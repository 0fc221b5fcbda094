#include "tools/bench/client/case.h"

#include <absl/strings/str_cat.h>

#include "tiers/base/units.h"

namespace kvkeep::bench {

absl::Status CaseSpec::Validate() const {
  const auto bad = [](auto... parts) { return absl::InvalidArgumentError(absl::StrCat(parts...)); };
  if (size < kMinPayloadBytes || size > kMaxPayloadBytes) {
    return bad("size: ", size, " bytes; chunks are of 1 byte to 256 MiB");
  }
  if (batch == 0) return bad("batch: at least 1");
  if (depth == 0 || depth > kMaxDepth) return bad("depth: 1 to ", kMaxDepth);
  if (verb != Verb::kPut && keys < batch) return bad("keys: ", keys, ", fewer than one batch");
  if (verb == Verb::kPieces && (batch != 1 || depth != 1)) {
    return bad("batch and depth: pieces are waited for one chunk at a time");
  }
  if (run_bytes > 0) {
    if (verb != Verb::kGet && verb != Verb::kPut) return bad("on a GPU there are puts and gets");
    if (depth != 1) return bad("depth: on a GPU 1");
    if (adjacent == 0 || adjacent > size || run_bytes > size / adjacent) {
      return bad("run size: ", adjacent, " runs of ", run_bytes, " bytes are more than a chunk");
    }
  }
  if (verb == Verb::kMixed && (mix.size() != 3 || mix[0] + mix[1] + mix[2] == 0)) {
    return bad("mix: all weights are 0");
  }
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
