#include "server/storage/copy_pool.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace kvkeep {

CopyPool::CopyPool(int threads, Numa* numa, NumaChoice choice)
    : numa_(numa == nullptr ? RealNuma() : *numa),
      nodes_(NumaPlacement(&numa_, choice).spread_over()),
      threads_("kvkeep-copy", threads, nodes_, [this, threads](int node) {
        // As many as the node with the most threads has.
        const int nodes = static_cast<int>(nodes_.size());
        Begin(node, (threads + nodes - 1) / nodes);
      }) {}

void CopyPool::Begin(int node, int most_threads) {
  absl::Status kept = numa_.RunOn(node, most_threads);
  MutexLock lock(&mu_);
  ++divided_[node];
  if (kept.ok()) return;
  ++free_;
  failure_.Update(std::move(kept));
}

void CopyPool::PassThrough() {
  for (Executor* const executor : {static_cast<Executor*>(&threads_), threads_.background()}) {
    AwaitTurn(*executor);
    for (const int node : nodes_) AwaitTurn(*executor, node);
  }
}

std::string CopyPool::describe() const {
  MutexLock lock(&mu_);
  if (divided_.empty()) return "";
  std::string text = absl::StrCat("copy threads on nodes (",
                                  absl::StrJoin(divided_, ", ", absl::PairFormatter(": ")), ")");
  if (free_ > 0) {
    absl::StrAppend(&text, ", ", free_, " of them on any: ", std::string(failure_.message()));
  }
  return text;
}

}  // namespace kvkeep
