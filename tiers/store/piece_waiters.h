// PieceWaiters: who waits for which pieces of an image that is on its way.
//
// A waiter waits at one piece: the last one that it wants and that is not ready yet, as pieces
// mostly come in order. So the cost of a piece that comes does not depend on waiters for other
// pieces. A waiter for the last piece also waits for the end: the header in the arena. The
// promotion's lock protects it.
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

  // Sets the number of pieces of the image. REQUIRES: nobody waits.
  void Resize(size_t pieces) { at_ = std::vector<std::vector<Waiter>>(pieces + 1); }
  // Adds a waiter for pieces [first, end). `patient`: it waits to the end. REQUIRES: not all that
  // it waits for is there.
  void Add(size_t first, size_t end, bool patient, Ready ready, Callback callback) {
    KVKEEP_CHECK(first <= end && end <= pieces());
    Waiter waiter{first, end, patient, std::move(callback)};
    const size_t at = LastMissing(waiter, end, ready);
    KVKEEP_CHECK(at < pieces() || end == pieces());
    at_[at].push_back(std::move(waiter));
  }
  // Notes that the piece is ready. Adds to `told` the waiters that now have all their pieces.
  // `end_there`: the end is there, too. Returns how many waiters it looked at.
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
  // Takes all waiters, once the end is there or the promotion has failed.
  Callbacks TakeAll() {
    Callbacks all;
    for (std::vector<Waiter>& here : at_) {
      for (Waiter& waiter : here) all.push_back(std::move(waiter.callback));
      here.clear();
    }
    return all;
  }

  // Takes all waiters that are not patient.
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
  // Returns the last piece below `from` that is not ready; pieces(): none is missing.
  size_t LastMissing(const Waiter& waiter, size_t from, Ready ready) const {
    for (size_t piece = from; piece > waiter.first; --piece) {
      if (!ready(piece - 1)) return piece - 1;
    }
    return pieces();
  }

  std::vector<std::vector<Waiter>> at_;  // by piece; last: the end
};

}  // namespace kvkeep::store_internal
