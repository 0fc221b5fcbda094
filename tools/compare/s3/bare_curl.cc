// libkvkeep-bare-s3.so: the bare loop of the comparison on one S3 server, for bare_arm.py.
// Libcurl's multi interface gets whole objects into memory, puts them from there, and does nothing
// else: no checksum, no cipher, no index. What is left of a client when nobody does anything with
// the bytes.
//
// Libcurl signs, without a payload's digest, as kvkeep does. One thread.
#include <curl/curl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep::bare_s3 {
namespace {

constexpr long kBufferBytes = 512 * 1024;  // as kvkeep's
constexpr int kPollMs = 1000;

enum class Verb : uint8_t { kGet, kPut };

// One object's transfer, to or from `place`.
class Transfer {
 public:
  Transfer(Verb verb, std::string url, const std::string& user, const std::string& signer,
           char* place, size_t size)
      : place_(place), size_(size), easy_(curl_easy_init()) {
    KVKEEP_CHECK(easy_ != nullptr);
    headers_ = curl_slist_append(headers_, "x-amz-content-sha256: UNSIGNED-PAYLOAD");
    Set(CURLOPT_URL, url.c_str());
    Set(CURLOPT_USERPWD, user.c_str());
    Set(CURLOPT_AWS_SIGV4, signer.c_str());
    Set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
    Set(CURLOPT_BUFFERSIZE, kBufferBytes);
    Set(CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
    Set(CURLOPT_WRITEFUNCTION, &OnBody);
    Set(CURLOPT_WRITEDATA, this);
    Set(CURLOPT_PRIVATE, this);
    if (verb == Verb::kPut) {
      Set(CURLOPT_UPLOAD, 1L);
      Set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(size_));
      Set(CURLOPT_READFUNCTION, &OnRead);
      Set(CURLOPT_READDATA, this);
      headers_ = curl_slist_append(headers_, "Expect:");  // no round trip before the body
    }
    Set(CURLOPT_HTTPHEADER, headers_);
  }
  ~Transfer() {
    curl_easy_cleanup(easy_);
    curl_slist_free_all(headers_);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  CURL* easy() const { return easy_; }
  size_t moved() const { return moved_; }
  bool Succeeded(CURLcode code) const {
    long status = 0;
    curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    return code == CURLE_OK && status == 200;
  }

 private:
  template <typename Value>
  void Set(CURLoption option, Value value) {
    KVKEEP_CHECK(curl_easy_setopt(easy_, option, value) == CURLE_OK);
  }
  static size_t OnBody(char* data, size_t one, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const size_t bytes = one * count;
    // The text of an error; the status says it.
    if (bytes > transfer.size_ - transfer.moved_) return bytes;
    std::memcpy(transfer.place_ + transfer.moved_, data, bytes);
    transfer.moved_ += bytes;
    return bytes;
  }
  static size_t OnRead(char* data, size_t one, size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const size_t bytes = std::min(one * count, transfer.size_ - transfer.moved_);
    std::memcpy(data, transfer.place_ + transfer.moved_, bytes);
    transfer.moved_ += bytes;
    return bytes;
  }

  char* place_;
  size_t size_, moved_ = 0;
  CURL* easy_;
  curl_slist* headers_ = nullptr;
};

class Loop {
 public:
  Loop(const std::string& region, std::string user, long connections)
      : signer_("aws:amz:" + region + ":s3"), user_(std::move(user)), multi_(curl_multi_init()) {
    curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, connections);
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, connections);
  }
  ~Loop() { curl_multi_cleanup(multi_); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // All of a prompt's chunks at once, over the connections. How many succeeded.
  size_t Move(Verb verb, const std::string& prompt_url, size_t chunks, char* places,
              size_t size) {
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (size_t i = 0; i < chunks; ++i) {
      transfers.push_back(std::make_unique<Transfer>(verb, prompt_url + std::to_string(i), user_,
                                                     signer_, places + i * size, size));
      curl_multi_add_handle(multi_, transfers.back()->easy());
    }
    size_t succeeded = 0;
    int running = 1;
    while (running > 0) {
      KVKEEP_CHECK(curl_multi_perform(multi_, &running) == CURLM_OK);
      succeeded += Collect(size);
      if (running > 0) curl_multi_poll(multi_, nullptr, 0, kPollMs, nullptr);
    }
    return succeeded;
  }

 private:
  size_t Collect(size_t size) {
    size_t succeeded = 0;
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      Transfer* transfer = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      curl_multi_remove_handle(multi_, transfer->easy());
      succeeded += transfer->Succeeded(code) && transfer->moved() == size;
    }
    return succeeded;
  }

  const std::string signer_, user_;
  CURLM* const multi_;
};

}  // namespace
}  // namespace kvkeep::bare_s3

#define KVKEEP_EXPORTED extern "C" __attribute__((visibility("default")))

// A loop without connections yet; `user`: key id and secret, with a colon between.
KVKEEP_EXPORTED void* bare_s3_begin(const char* region, const char* user, long connections) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  return new kvkeep::bare_s3::Loop(region, user, connections);
}
KVKEEP_EXPORTED void bare_s3_end(void* loop) {
  delete static_cast<kvkeep::bare_s3::Loop*>(loop);
}
// Puts or gets the objects PROMPT_URL0, PROMPT_URL1 and so on, whose places lie one behind the
// other. How many succeeded.
KVKEEP_EXPORTED uint64_t bare_s3_move(void* loop, int puts, const char* prompt_url, uint64_t chunks,
                                      char* places, uint64_t size) {
  using kvkeep::bare_s3::Verb;
  return static_cast<kvkeep::bare_s3::Loop*>(loop)->Move(puts != 0 ? Verb::kPut : Verb::kGet,
                                                         prompt_url, chunks, places, size);
}
