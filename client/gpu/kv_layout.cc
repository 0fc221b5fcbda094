#include "client/gpu/kv_layout.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep::client {
namespace {

using enum KvAxis;

constexpr std::array<absl::string_view, kKvAxes> kAxisNames = {"layer", "kv", "block", "slot",
                                                               "head"};

struct Form {
  KvFormat format;
  absl::string_view name;
  // From the outermost on; the first `tensor_axes` axes pick the tensor.
  std::array<KvAxis, kKvAxes> order;
  size_t tensor_axes;
};

// In the order of the enum.
constexpr std::array<Form, kKvFormats> kForms = {{
    {KvFormat::kLayersKvBlocks, "NL x [2,NB,BS,NH,HS]", {kLayer, kKv, kBlock, kSlot, kHead}, 1},
    {KvFormat::kLayersBlocksKv, "NL x [NB,2,BS,NH,HS]", {kLayer, kBlock, kKv, kSlot, kHead}, 1},
    {KvFormat::kLayersKvBlocksHnd, "NL x [2,NB,NH,BS,HS]", {kLayer, kKv, kBlock, kHead, kSlot}, 1},
    {KvFormat::kLayersBlocksKvHnd, "NL x [NB,2,NH,BS,HS]", {kLayer, kBlock, kKv, kHead, kSlot}, 1},
    {KvFormat::kLayersFused, "NL x [NB,BS,NH,2*HS]", {kLayer, kBlock, kSlot, kHead, kKv}, 1},
    {KvFormat::kLayersFusedHnd, "NL x [NB,NH,BS,2*HS]", {kLayer, kBlock, kHead, kSlot, kKv}, 1},
    {KvFormat::kLatent, "NL x [NB,BS,HS]", {kLayer, kKv, kBlock, kSlot, kHead}, 1},
    {KvFormat::kSplitKv, "2NL x [NB*BS,NH,HS]", {kKv, kLayer, kBlock, kSlot, kHead}, 2},
    {KvFormat::kOneTensor, "[NL,2,NB,BS,NH,HS]", {kLayer, kKv, kBlock, kSlot, kHead}, 0},
    {KvFormat::kBlocksFirst, "[NB,NL,2,BS,NH,HS]", {kBlock, kLayer, kKv, kSlot, kHead}, 0},
}};

const Form& FormOf(KvFormat format) {
  const auto index = static_cast<size_t>(format);
  KVKEEP_CHECK(index < kForms.size() && kForms[index].format == format);
  return kForms[index];
}

absl::Status Wrong(KvAxis axis, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("layout: axis ", kAxisNames[static_cast<size_t>(axis)], " ", what));
}

}  // namespace

absl::string_view KvFormatName(KvFormat format) { return FormOf(format).name; }

KvLayout KvLayout::Dense(KvFormat format, const KvShape& shape, std::vector<KvTensor> tensors) {
  const Form& form = FormOf(format);
  KvLayout layout;
  layout.head_bytes = shape.head_bytes;
  layout.tensors = std::move(tensors);
  layout.axis(kLayer).extent = shape.layers;
  layout.axis(kKv).extent = format == KvFormat::kLatent ? 1 : 2;
  layout.axis(kBlock).extent = shape.blocks;
  layout.axis(kSlot).extent = shape.block_tokens;
  layout.axis(kHead).extent = shape.heads;
  uint64_t bytes = shape.head_bytes;
  for (size_t i = kKvAxes; i-- > 0;) {
    Axis& axis = layout.axis(form.order[i]);
    axis.picks_tensor = i < form.tensor_axes;
    if (axis.picks_tensor) continue;
    axis.stride = bytes;
    // Too large for any memory: Validate sees the stride, which no tensor has room for.
    if (__builtin_mul_overflow(bytes, axis.extent, &bytes)) bytes = UINT64_MAX;
  }
  return layout;
}

absl::Status KvLayout::Validate() const {
  if (head_bytes == 0) return absl::InvalidArgumentError("layout: head_bytes is 0");
  uint64_t wanted = 1;
  for (const KvAxis which : {kLayer, kKv, kBlock, kSlot, kHead}) {
    const Axis& one = axis(which);
    if (one.extent == 0) return Wrong(which, "has no elements");
    if (!one.picks_tensor) continue;
    if (which != kLayer && which != kKv) return Wrong(which, "cannot pick a tensor");
    if (__builtin_mul_overflow(wanted, one.extent, &wanted)) return Wrong(which, "is too large");
  }
  if (axis(kKv).extent > 2) return Wrong(kKv, "has more than K and V");
  if (tensors.size() != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout: ", tensors.size(), " tensors where its axes take ", wanted));
  }
  const bool slots_inside = axis(kSlot).stride < axis(kBlock).stride ||
                            (axis(kSlot).stride == axis(kBlock).stride && axis(kSlot).extent == 1);
  if (!slots_inside) return Wrong(kSlot, "does not lie within a block");
  // From the smallest stride on: each must go beyond the reach of the smaller ones.
  uint64_t reach = head_bytes;
  const std::array<KvAxis, kKvAxes> order = MemoryOrder();
  for (auto which = order.rbegin(); which != order.rend(); ++which) {
    const Axis& one = axis(*which);
    if (one.picks_tensor || one.extent == 1) continue;
    if (one.stride < reach) {
      return Wrong(*which, absl::StrCat("has steps of ", one.stride, " bytes over ", reach,
                                        " bytes: elements overlap"));
    }
    uint64_t steps = 0;
    if (__builtin_mul_overflow(one.extent - 1, one.stride, &steps) ||
        __builtin_add_overflow(steps, reach, &reach)) {
      return Wrong(*which, "is larger than any memory");
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint64_t end = 0;
    if (tensors[i].bytes < reach || __builtin_add_overflow(tensors[i].offset, reach, &end)) {
      return absl::InvalidArgumentError(absl::StrCat("layout: tensors[", i, "] has ",
                                                     tensors[i].bytes, " bytes at ",
                                                     tensors[i].offset, "; elements take ", reach));
    }
  }
  return absl::OkStatus();
}

std::array<KvAxis, kKvAxes> KvLayout::MemoryOrder() const {
  std::array<KvAxis, kKvAxes> order = {kKv, kLayer, kBlock, kSlot, kHead};
  std::stable_sort(order.begin(), order.end(), [this](KvAxis a, KvAxis b) {
    if (axis(a).picks_tensor != axis(b).picks_tensor) return axis(a).picks_tensor;
    return !axis(a).picks_tensor && axis(a).stride > axis(b).stride;
  });
  return order;
}

}  // namespace kvkeep::client
