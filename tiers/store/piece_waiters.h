// PieceWaiters: who waits for which pieces of an image that is on its way.
//
// Each waits at one piece: the last of its own that is not ready yet, as pieces mostly come in
// order. So a piece that comes costs what is to be told of it, however many wait for others. A
// waiter for the last piece waits for the end as well: the header in the arena. The promotion's
// lock protects it.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

class PieceWaiters {
 public:
  using Callback = absl::AnyInvocable<void(absl::Status) &&>;
  using Callbacks = std::vector<Callback>;
  using Ready = absl::FunctionRef<bool(size_t piece)>;

  // The image has so many pieces. REQUIRES: nobody waits.
  void Resize(size_t pieces) { at_ = std::vector<std::vector<Waiter>>(pieces + 1); }
  // For pieces [first, end). REQUIRES: not all that it waits for is there. `patient`: it waits to
  // the end.
  void Add(size_t first, size_t end, bool patient, Ready ready, Callback callback) {
    KVKEEP_CHECK(first <= end && end <= pieces());
    Waiter waiter{first, end, patient, std::move(callback)};
    const size_t at = LastMissing(waiter, end, ready);
    KVKEEP_CHECK(at < pieces() || end == pieces());
    at_[at].push_back(std::move(waiter));
  }
  // The piece is ready. Adds whom nothing is missing any more, `end_there`: nor the end. Returns
  // how many it looked at.
  size_t OnReady(size_t piece, bool end_there, Ready ready, Callbacks* told) {
    KVKEEP_CHECK(piece < pieces());
    std::vector<Waiter> here = std::exchange(at_[piece], {});
    for (Waiter& waiter : here) {
      const size_t at = LastMissing(waiter, piece, ready);
      const bool last = waiter.end == pieces();
      if (at == pieces() && (!last || end_there)) {
        told->push_back(std::move(waiter.callback));
      } else {
        at_[at].push_back(std::move(waiter));
      }
    }
    return here.size();
  }
  // The end is there, or it failed: all that still wait.
  Callbacks TakeAll() {
    Callbacks all;
    for (std::vector<Waiter>& here : at_) {
      for (Waiter& waiter : here) all.push_back(std::move(waiter.callback));
      here.clear();
    }
    return all;
  }

  // All that are not patient.
  Callbacks TakeImpatient() {
    Callbacks taken;
    for (std::vector<Waiter>& here : at_) {
      const auto patient = std::stable_partition(
          here.begin(), here.end(), [](const Waiter& waiter) { return waiter.patient; });
      for (auto at = patient; at != here.end(); ++at) taken.push_back(std::move(at->callback));
      here.erase(patient, here.end());
    }
    return taken;
  }

 private:
  struct Waiter {
    size_t first, end;
    bool patient;
    Callback callback;
  };
  size_t pieces() const { return at_.size() - 1; }
  // Below `from`, as those from there on are ready; pieces() when none is missing.
  size_t LastMissing(const Waiter& waiter, size_t from, Ready ready) const {
    for (size_t piece = from; piece > waiter.first; --piece) {
      if (!ready(piece - 1)) return piece - 1;
    }
    return pieces();
  }

  std::vector<std::vector<Waiter>> at_;  // by piece; last: the end
};

}  // namespace kvkeep::store_internal
