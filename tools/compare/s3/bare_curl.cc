// kvkeep-bare-s3: the bare loop of the comparison on one S3 server. Libcurl's multi interface gets
// whole objects into populated memory, puts them from there, and does nothing else: no checksum, no
// cipher, no index. What is left of a client when nobody does anything with the bytes.
//
// It answers the commands of arm.py: JSON, a line each. Libcurl signs, without a payload's digest,
// as kvkeep does. One thread.
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <curl/curl.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep::bare_s3 {
namespace {

using nlohmann::json;

constexpr long kBufferBytes = 512 * 1024;  // as kvkeep's
constexpr size_t kStep = 64;               // arm.py's STEP
constexpr int kNotLoaded = 0xA5;           // arm.py's NOT_LOADED
constexpr int kPollMs = 1000;

// Populated memory, until it goes.
class Pages {
 public:
  explicit Pages(size_t size) : size_(size) {
    void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    KVKEEP_CHECK(mapped != MAP_FAILED);
    data_ = static_cast<char*>(mapped);
    madvise(data_, size_, MADV_HUGEPAGE);  // a hint
    std::memset(data_, kNotLoaded, size_);
  }
  ~Pages() { munmap(data_, size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  char* data_;
  size_t size_;
};

enum class Verb : uint8_t { kGet, kPut, kHead };

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
    if (verb == Verb::kHead) Set(CURLOPT_NOBODY, 1L);
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
  Loop(std::string bucket_url, const std::string& region, std::string user, long connections)
      : bucket_url_(std::move(bucket_url)),
        signer_("aws:amz:" + region + ":s3"),
        user_(std::move(user)),
        connections_(connections) {
    Renew();
  }
  ~Loop() { curl_multi_cleanup(multi_); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Without connections.
  void Renew() {
    curl_multi_cleanup(multi_);
    multi_ = curl_multi_init();
    curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, connections_);
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, connections_);
  }

  // All of a prompt's chunks at once, over the connections. How many succeeded.
  size_t Move(Verb verb, const std::string& prompt, size_t chunks, char* places, size_t size) {
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (size_t i = 0; i < chunks; ++i) {
      transfers.push_back(std::make_unique<Transfer>(
          verb, absl::StrCat(bucket_url_, "/bare/", prompt, "/", i), user_, signer_,
          places + i * size, size));
      curl_multi_add_handle(multi_, transfers.back()->easy());
    }
    size_t succeeded = 0;
    int running = 1;
    while (running > 0) {
      KVKEEP_CHECK(curl_multi_perform(multi_, &running) == CURLM_OK);
      succeeded += Collect(verb, size);
      if (running > 0) curl_multi_poll(multi_, nullptr, 0, kPollMs, nullptr);
    }
    return succeeded;
  }

 private:
  size_t Collect(Verb verb, size_t size) {
    size_t succeeded = 0;
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      Transfer* transfer = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      curl_multi_remove_handle(multi_, transfer->easy());
      succeeded += transfer->Succeeded(code) && (verb == Verb::kHead || transfer->moved() == size);
    }
    return succeeded;
  }

  std::string bucket_url_, signer_, user_;
  long connections_;
  CURLM* multi_ = nullptr;
};

class Commands {
 public:
  explicit Commands(Loop& loop) : loop_(loop) {}

  absl::StatusOr<json> Answer(const json& command) {
    const std::string what = command.at("do");
    if (what == "hello") {
      return json::object({{"version", curl_version_info(CURLVERSION_NOW)->version}});
    }
    if (what == "begin") return Begin(command);
    if (what == "end") {
      pages_.reset();
      return json::object();
    }
    const std::string prompt = command.value("prompt", "");
    if (what == "lookup") {
      return Timed(Verb::kHead, prompt, command.at("keys"), "found");
    }
    const size_t chunks = command.at("chunks");
    KVKEEP_CHECK(pages_ != nullptr && chunks * size_ <= pages_->size());
    if (what == "compare") return json::object({{"wrong_bytes", WrongBytes(chunks)}});
    if (what == "load") std::memset(pages_->data(), kNotLoaded, pages_->size());
    if (what == "put") {
      for (size_t i = 0; i < chunks; ++i) std::memcpy(Place(i), Payload(i), size_);
    }
    json answer = Timed(what == "put" ? Verb::kPut : Verb::kGet, prompt, chunks, "moved");
    if (answer["moved"] != chunks) {
      return absl::UnavailableError(
          absl::StrCat(answer["moved"].dump(), " of ", chunks, " chunks were moved"));
    }
    return answer;
  }

 private:
  json Begin(const json& command) {
    size_ = command.at("size");
    const size_t chunks = command.at("chunks");
    pages_ = std::make_unique<Pages>(size_ * chunks);
    payloads_.resize(size_ + chunks * kStep);
    std::mt19937_64 random(size_);
    for (size_t at = 0; at + sizeof(uint64_t) <= payloads_.size(); at += sizeof(uint64_t)) {
      const uint64_t value = random();
      std::memcpy(payloads_.data() + at, &value, sizeof value);
    }
    loop_.Renew();
    return json::object({{"pids", json::array()}});
  }
  json Timed(Verb verb, const std::string& prompt, size_t count, const char* name) {
    const auto began = std::chrono::steady_clock::now();
    const size_t done = loop_.Move(verb, prompt, count, pages_->data(),
                                   verb == Verb::kHead ? 0 : size_);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    return json::object({{"seconds", took.count()}, {name, done}});
  }
  uint64_t WrongBytes(size_t chunks) const {
    uint64_t wrong = 0;
    for (size_t i = 0; i < chunks; ++i) {
      if (std::memcmp(Place(i), Payload(i), size_) == 0) continue;
      for (size_t at = 0; at < size_; ++at) wrong += Place(i)[at] != Payload(i)[at];
    }
    return wrong;
  }
  char* Place(size_t i) const { return pages_->data() + i * size_; }
  const char* Payload(size_t i) const { return payloads_.data() + i * kStep; }

  Loop& loop_;
  size_t size_ = 0;
  std::unique_ptr<Pages> pages_;
  std::vector<char> payloads_;
};

std::string UserOf(const std::string& path) {
  std::ifstream file(path);
  std::string id, secret;
  file >> id >> secret;
  return id + ":" + secret;
}

int Run(char** arguments) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  Loop loop(absl::StrCat(arguments[1], "/", arguments[2]), arguments[3], UserOf(arguments[4]),
            std::atol(arguments[5]));
  Commands commands(loop);
  std::string line;
  while (std::getline(std::cin, line)) {
    const absl::StatusOr<json> answer = commands.Answer(json::parse(line));
    json said = json::object();
    if (answer.ok()) {
      said = *answer;
    } else {
      said["error"] = answer.status().ToString();
    }
    std::cout << said.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace kvkeep::bare_s3

// Arguments: arm.py's Where.
int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "usage: kvkeep-bare-s3 ENDPOINT BUCKET REGION CREDENTIALS CONNECTIONS DIRECTORY\n";
    return 2;
  }
  return kvkeep::bare_s3::Run(argv);
}
