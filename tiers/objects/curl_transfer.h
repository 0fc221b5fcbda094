// CurlTransfer: one request on libcurl's way: its handle, what has come, and whether it is late.
// For CurlEngine alone, on its thread.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>

#include "tiers/objects/curl_engine.h"

namespace kvkeep {

class CurlEngine::Transfer {
 public:
  Transfer(const CurlEngineOptions& options, HttpRequest request, Done done, MonotonicTime now);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Sets up the handle; an error of libcurl's is an error of the request.
  absl::Status Prepare(HttpCall call);
  CURL* handle() const { return easy_.get(); }

  // Returns why the transfer must end now, or OK. Called at `WakeAt` at the latest.
  absl::Status Late(MonotonicTime now);
  MonotonicTime WakeAt() const;
  // Returns whether its body was too slow over the stretch that ends now.
  bool IsSlow(MonotonicTime now);
  // Returns whether it is given up before `other` when both are slow.
  bool GoesBefore(const Transfer& other) const;
  absl::Status GiveUpSlow();
  // Starts a new measurement of its body's speed.
  void MeasureAnew(MonotonicTime now);

  // Returns libcurl's result as a status of ours.
  absl::Status Finished(CURLcode code) const;
  // Hands the answer out. Nothing that the request names is touched from here on.
  void Answer(absl::Status status, MonotonicTime now);

 private:
  struct FreeEasy {
    void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
  };
  struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };

  uint64_t least_bytes_per_second() const {
    return request_.least_bytes_per_second.value_or(options_.least_bytes_per_second);
  }
  absl::Status TooSlow() const;
  absl::Status SetOptions(HttpCall call);
  absl::Status SetBody();
  absl::Status SetHeaders();
  size_t TakeHeader(absl::string_view line);
  size_t TakeBody(std::span<const std::byte> bytes);
  size_t GiveBody(char* to, size_t most);
  bool SeekBody(uint64_t to);
  // Ends the transfer from inside a callback.
  size_t Stop(absl::Status why);

  static size_t OnHeader(char* line, size_t size, size_t count, void* self);
  static size_t OnBody(char* bytes, size_t size, size_t count, void* self);
  static size_t OnRead(char* to, size_t size, size_t count, void* self);
  static int OnSeek(void* self, curl_off_t offset, int origin);
  static int OnSocket(void* self, curl_socket_t socket, curlsocktype purpose);

  const CurlEngineOptions& options_;
  HttpRequest request_;
  Done done_;
  const MonotonicTime begun_;
  std::unique_ptr<CURL, FreeEasy> easy_;
  std::unique_ptr<curl_slist, FreeList> list_;
  HttpAnswer answer_;
  absl::Status stopped_;
  bool stop_ = false;
  uint64_t body_size_ = 0, head_bytes_ = 0;
  size_t run_ = 0, in_run_ = 0;  // where the body that is sent goes on
  uint64_t at_ = 0;
  bool head_done_ = false;  // the sink has seen it
  // Bytes moved so far, up to the begin of the present stretch, and when some were last seen.
  uint64_t moved_ = 0, moved_before_ = 0, moved_seen_ = 0;
  std::optional<MonotonicTime> stretch_from_, moved_at_;  // while its body moves
  std::optional<MonotonicTime> sent_at_;  // all of the request
};

}  // namespace kvkeep
