#include "tests/fakes/cuda/state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace kvkeep::fakecuda {

State& TheState() {
  static State* const state = new State();
  return *state;
}

CurrentContext& ThreadContext() {
  thread_local CurrentContext context;
  return context;
}

void Violation(const char* what) {
  std::fprintf(stderr, "fake libcuda: undefined behaviour: %s\n", what);
  std::fflush(stderr);
  if (CurrentSettings()->strict) std::abort();
}

std::shared_ptr<Range> FindRange(State* state, uint64_t address, uint64_t bytes) {
  auto after = state->ranges.upper_bound(address);
  if (after == state->ranges.begin()) return nullptr;
  const std::shared_ptr<Range>& range = std::prev(after)->second;
  const uint64_t offset = address - range->base;
  if (offset >= range->bytes || bytes > range->bytes - offset) return nullptr;
  return range;
}

Entry::Entry(State* state, const char* name, Needs needs) : state_(state) {
  settings_ = CurrentSettings();
  state_->mu.Lock();
  while (settings_->hangs.count(name) > 0) {
    state_->changed.WaitFor(&state_->mu, kLookAgain);
    settings_ = CurrentSettings();
  }
  if (state_->settings != settings_) {
    state_->settings = settings_;
    state_->calls.clear();
  }
  error_ = Check(name, needs);
}

CUresult Entry::Check(const char* name, Needs needs) {
  const uint64_t call = state_->calls[name]++;
  for (const Failure& failure : settings_->failures) {
    if (failure.name == name && call >= failure.skip && call - failure.skip < failure.times) {
      return static_cast<CUresult>(failure.error);
    }
  }
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  if (!state_->initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (needs == Needs::kInit) return CUDA_SUCCESS;
  const CurrentContext context = ThreadContext();
  if (context.device < 0) return CUDA_ERROR_INVALID_CONTEXT;
  Device& device = state_->devices[context.device];
  if (device.context_users == 0 || device.context_number != context.number) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  if (settings_->sticky != 0) device.broken = static_cast<CUresult>(settings_->sticky);
  if (device.broken != CUDA_SUCCESS) {
    DropStreams(state_, context.device);
    return device.broken;
  }
  device_ = context.device;
  return CUDA_SUCCESS;
}

void JoinEnded(State* state) {
  auto& ended = state->ended_streams;
  const auto finished = std::stable_partition(ended.begin(), ended.end(),
                                              [](const auto& stream) { return !stream->finished; });
  // A finished thread only has to return, and needs no lock for that.
  std::for_each(finished, ended.end(), [](const auto& stream) { stream->thread.join(); });
  ended.erase(finished, ended.end());
}

}  // namespace kvkeep::fakecuda
