// Streams and events of the fake driver: one thread a stream, which does what is queued in order.
//
// Rules, and where they are from (README.md):
// - A stream works in order. Streams and the calling thread do not wait for each other. [doc]
// - cuStreamDestroy returns at once, and queued work is still done. [doc]
// - cuEventQuery of an event never recorded: success. [doc]
// - cuStreamDestroy and cuEventDestroy of what went with its context: undefined behaviour, may
//   crash. [seen]
#include "tests/fakes/cuda/stream.h"

#include <cuda.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "tests/fakes/cuda/state.h"

namespace kvkeep::fakecuda {
namespace {

constexpr char kCopyThread[] = "fake-gpu-copies";

bool Ready(const Operation& operation) {
  return operation.wait == nullptr || operation.wait->completed >= operation.number;
}

// Waits for the delay of a copy; returns false if the stream was dropped meanwhile.
bool Delay(State* state, const Stream& stream, std::chrono::microseconds delay)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  const auto until = std::chrono::steady_clock::now() + delay;
  while (!stream.dropped) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero()) break;
    state->changed.WaitFor(&state->mu, left);
  }
  return !stream.dropped;
}

void Finish(State* state, const Operation& operation, bool done)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  for (const std::shared_ptr<Range>& range : operation.ranges) --range->copies;
  if (done && operation.record != nullptr) {
    operation.record->completed = std::max(operation.record->completed, operation.number);
  }
  state->changed.NotifyAll();
}

// Takes the first operation that may run now; returns false if there is none and never will be.
bool Next(State* state, Stream* stream, Operation* operation)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  while (true) {
    if (stream->queue.empty()) {
      if (stream->closing) return false;
      state->changed.Wait(&state->mu);
    } else if (CurrentSettings()->hangs.count("stream") > 0) {
      state->changed.WaitFor(&state->mu, kLookAgain);
    } else if (!Ready(stream->queue.front())) {
      state->changed.Wait(&state->mu);
    } else {
      *operation = std::move(stream->queue.front());
      stream->queue.pop_front();
      return true;
    }
  }
}

void Run(std::shared_ptr<Stream> stream) {
  State& state = TheState();
  state.mu.Lock();
  for (Operation operation; Next(&state, stream.get(), &operation); operation = {}) {
    stream->running = true;
    bool done = true;
    const std::chrono::microseconds delay(CurrentSettings()->copy_delay_us);
    if (!operation.parts.empty() && delay.count() > 0) done = Delay(&state, *stream, delay);
    if (done) {
      state.mu.Unlock();
      for (const CopyPart& part : operation.parts) std::memcpy(part.to, part.from, part.bytes);
      state.mu.Lock();
    }
    stream->running = false;
    Finish(&state, operation, done);
  }
  stream->finished = true;
  state.changed.NotifyAll();
  state.mu.Unlock();
}

std::shared_ptr<Stream> FindStream(State* state, CUstream handle)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  const auto found = state->streams.find(handle);
  return found == state->streams.end() ? nullptr : found->second;
}

std::shared_ptr<Event> FindEvent(State* state, CUevent handle)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  const auto found = state->events.find(handle);
  return found == state->events.end() ? nullptr : found->second;
}

bool Idle(const Stream& stream) { return stream.queue.empty() && !stream.running; }

// Waits for `condition`, or until the device's context is broken or gone.
template <typename Condition>
CUresult Await(State* state, int device, Condition condition)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(state->mu) {
  while (!condition()) {
    if (state->devices[device].broken != CUDA_SUCCESS) return state->devices[device].broken;
    if (state->devices[device].context_number != ThreadContext().number) {
      return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    state->changed.WaitFor(&state->mu, kLookAgain);
  }
  return CUDA_SUCCESS;
}

}  // namespace

void DropStreams(State* state, int device) {
  std::vector<std::shared_ptr<Stream>> streams = state->ended_streams;
  for (const auto& [handle, stream] : state->streams) streams.push_back(stream);
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (stream->device != device) continue;
    stream->dropped = true;
    for (const Operation& dropped : stream->queue) Finish(state, dropped, false);
    stream->queue.clear();
  }
  state->changed.NotifyAll();
  for (const std::shared_ptr<Stream>& stream : streams) {
    while (stream->device == device && stream->running) state->changed.Wait(&state->mu);
  }
}

CUresult Enqueue(State* state, CUstream handle, Operation operation, bool synchronous) {
  const std::shared_ptr<Stream> stream = FindStream(state, handle);
  if (stream == nullptr || stream->dropped) return CUDA_ERROR_INVALID_HANDLE;
  auto done = std::make_shared<Event>();
  for (const std::shared_ptr<Range>& range : operation.ranges) ++range->copies;
  stream->queue.push_back(std::move(operation));
  if (synchronous) stream->queue.push_back({.record = done, .number = 1});
  state->changed.NotifyAll();
  if (!synchronous) return CUDA_SUCCESS;
  return Await(state, stream->device, [&] { return done->completed == 1; });
}

extern "C" {

CUresult CUDAAPI cuStreamCreate(CUstream* out, unsigned flags) {
  State& state = TheState();
  const Entry entry(&state, "cuStreamCreate", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (out == nullptr || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  JoinEnded(&state);
  auto stream = std::make_shared<Stream>();
  stream->device = entry.device();
  stream->thread = std::thread([stream] {
    pthread_setname_np(pthread_self(), kCopyThread);
    Run(stream);
  });
  *out = reinterpret_cast<CUstream>(stream.get());
  state.streams[*out] = stream;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
  State& state = TheState();
  const Entry entry(&state, "cuStreamDestroy", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Stream> stream = FindStream(&state, handle);
  if (stream == nullptr) {
    Violation("cuStreamDestroy of a stream that is gone, as its context may be");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  state.streams.erase(handle);
  stream->closing = true;
  state.ended_streams.push_back(stream);
  state.changed.NotifyAll();
  // Returns at once, whatever is queued; an idle thread is joined here, so that none is left over.
  while (Idle(*stream) && !stream->finished) state.changed.Wait(&state.mu);
  JoinEnded(&state);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
  State& state = TheState();
  const Entry entry(&state, "cuStreamQuery", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Stream> stream = FindStream(&state, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Idle(*stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  State& state = TheState();
  const Entry entry(&state, "cuStreamSynchronize", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Stream> stream = FindStream(&state, handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Await(&state, stream->device, [&] { return Idle(*stream); });
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  State& state = TheState();
  const Entry entry(&state, "cuStreamWaitEvent", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Event> event = FindEvent(&state, event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != CU_EVENT_WAIT_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  return Enqueue(&state, handle, {.wait = event, .number = event->recorded}, false);
}

CUresult CUDAAPI cuEventCreate(CUevent* out, unsigned flags) {
  State& state = TheState();
  const Entry entry(&state, "cuEventCreate", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (out == nullptr || (flags & ~known) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>();
  *out = reinterpret_cast<CUevent>(event.get());
  state.events[*out] = event;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
  State& state = TheState();
  const Entry entry(&state, "cuEventDestroy", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  if (state.events.erase(handle) == 1) return CUDA_SUCCESS;
  Violation("cuEventDestroy of an event that is gone, as its context may be");
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream) {
  State& state = TheState();
  const Entry entry(&state, "cuEventRecord", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Event> event = FindEvent(&state, handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t number = event->recorded + 1;
  const CUresult result = Enqueue(&state, stream, {.record = event, .number = number}, false);
  if (result == CUDA_SUCCESS) event->recorded = number;
  return result;
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
  State& state = TheState();
  const Entry entry(&state, "cuEventQuery", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Event> event = FindEvent(&state, handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return event->completed >= event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  State& state = TheState();
  const Entry entry(&state, "cuEventSynchronize", Needs::kContext);
  if (entry.error() != CUDA_SUCCESS) return entry.error();
  const std::shared_ptr<Event> event = FindEvent(&state, handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const uint64_t until = event->recorded;
  return Await(&state, entry.device(), [&] { return event->completed >= until; });
}

}  // extern "C"

}  // namespace kvkeep::fakecuda
