// KvLayout: the place of each element in an engine's paged KV memory. Numbers only: no driver, no
// memory, no engine's types.
//
// Five axes name an element: its layer, K or V, the block, the slot (its token's place in the
// block) and the head; an element is head_bytes bytes in a row. Some axes pick the tensor, the
// others are strides within it. The formats are those of the engines, in their notation: NL layers,
// NB blocks, BS tokens a block, NH heads, HS elements a head. Plain values.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "client/gpu/gpu_run.h"

namespace kvkeep::client {

enum class KvFormat {
  kLayersKvBlocks,     // NL x [2, NB, BS, NH, HS]
  kLayersBlocksKv,     // NL x [NB, 2, BS, NH, HS]
  kLayersKvBlocksHnd,  // NL x [2, NB, NH, BS, HS]
  kLayersBlocksKvHnd,  // NL x [NB, 2, NH, BS, HS]
  kLayersFused,        // NL x [NB, BS, NH, 2 * HS]: K and V side by side
  kLayersFusedHnd,     // NL x [NB, NH, BS, 2 * HS]
  kLatent,             // NL x [NB, BS, HS]: no heads, K and V are one (MLA)
  kSplitKv,            // 2NL x [NB * BS, NH, HS]: the layers' K, then the layers' V
  kOneTensor,          // [NL, 2, NB, BS, NH, HS]
  kBlocksFirst,        // [NB, NL, 2, BS, NH, HS]: all layers of a block in one piece
};
inline constexpr size_t kKvFormats = 10;
absl::string_view KvFormatName(KvFormat format);  // as above, e.g. "NL x [2,NB,BS,NH,HS]"

enum class KvAxis : uint8_t { kLayer, kKv, kBlock, kSlot, kHead };
inline constexpr size_t kKvAxes = 5;

struct KvShape {
  uint32_t layers = 0;
  uint32_t blocks = 0;
  uint32_t block_tokens = 0;
  uint32_t heads = 0;       // of this rank; 1 for kLatent
  uint32_t head_bytes = 0;  // of one head of K, or of V
};

// The place of one tensor in registered memory.
struct KvTensor {
  GpuRegionId region;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct KvLayout {
  struct Axis {
    uint64_t extent = 1;
    uint64_t stride = 0;  // bytes; ignored if the axis picks the tensor
    bool picks_tensor = false;
  };

  // Returns a layout without gaps. The caller must Validate the result, as the shape may be
  // anything.
  static KvLayout Dense(KvFormat format, const KvShape& shape, std::vector<KvTensor> tensors);

  // By KvAxis. For tensors with gaps, or in an order that is not their format's, set the strides.
  std::array<Axis, kKvAxes> axes;
  uint64_t head_bytes = 0;
  // In the order of the axes that pick a tensor: kv, layer.
  std::vector<KvTensor> tensors;

  const Axis& axis(KvAxis which) const { return axes[static_cast<size_t>(which)]; }
  Axis& axis(KvAxis which) { return axes[static_cast<size_t>(which)]; }

  // InvalidArgument names the fault: an empty axis, elements that overlap or lie outside their
  // tensor, slots that are not inside their block. In a valid layout no offset of an element
  // overflows.
  absl::Status Validate() const;
  // Returns the axes by descending stride; axes that pick the tensor come first.
  std::array<KvAxis, kKvAxes> MemoryOrder() const;
};

}  // namespace kvkeep::client
