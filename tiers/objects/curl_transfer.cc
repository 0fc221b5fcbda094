#include "tiers/objects/curl_transfer.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr long kBufferBytes = 512 * 1024;  // as measured: the copy out of it costs nothing then

// Returns false once an option was refused.
class EasyOptions {
 public:
  explicit EasyOptions(CURL* easy) : easy_(easy) {}
  template <typename T>
  void Set(CURLoption option, T value) {
    ok_ = ok_ && curl_easy_setopt(easy_, option, value) == CURLE_OK;
  }
  bool ok() const { return ok_; }

 private:
  CURL* const easy_;
  bool ok_ = true;
};

bool IsSuccessStatus(int status) { return status >= 200 && status < 300; }

}  // namespace

CurlEngine::Transfer::Transfer(const CurlEngineOptions& options, HttpRequest request, Done done,
                               MonotonicTime now)
    : options_(options), request_(std::move(request)), done_(std::move(done)), begun_(now) {
  for (const auto& run : request_.body) body_size_ += run.size();
}

CurlEngine::Transfer::~Transfer() = default;

absl::Status CurlEngine::Transfer::Prepare(HttpCall call) {
  easy_.reset(curl_easy_init());
  if (easy_ == nullptr) return absl::ResourceExhaustedError("libcurl has no memory for a request");
  KVKEEP_RETURN_IF_ERROR(SetOptions(call));
  KVKEEP_RETURN_IF_ERROR(SetBody());
  return SetHeaders();
}

absl::Status CurlEngine::Transfer::SetOptions(HttpCall call) {
  EasyOptions set(easy_.get());
  set.Set(CURLOPT_URL, request_.url.c_str());
  set.Set(CURLOPT_PATH_AS_IS, 1L);  // what was signed
  set.Set(CURLOPT_PROTOCOLS_STR, "http,https");
  set.Set(CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  set.Set(CURLOPT_FOLLOWLOCATION, 0L);
  set.Set(CURLOPT_NETRC, long{CURL_NETRC_IGNORED});
  // Set, so that libcurl does not take the environment's. A proxy's own head is no answer.
  set.Set(CURLOPT_PROXY, options_.proxy.c_str());
  set.Set(CURLOPT_NOPROXY, "");
  set.Set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set.Set(CURLOPT_NOSIGNAL, 1L);
  // Otherwise the end of a request waits for the thread that looks up its host's name.
  set.Set(CURLOPT_QUICK_EXIT, 1L);
  set.Set(CURLOPT_DNS_CACHE_TIMEOUT, static_cast<long>(options_.names_kept.count()));
  set.Set(CURLOPT_DNS_SHUFFLE_ADDRESSES, 1L);
  set.Set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_within.count()));
  set.Set(CURLOPT_MAXAGE_CONN, static_cast<long>(options_.connection_idle.count()));
  set.Set(CURLOPT_MAXLIFETIME_CONN, static_cast<long>(options_.connection_life.count()));
  set.Set(CURLOPT_BUFFERSIZE, kBufferBytes);
  set.Set(CURLOPT_UPLOAD_BUFFERSIZE, kBufferBytes);
  set.Set(CURLOPT_SSLVERSION, long{CURL_SSLVERSION_TLSv1_2});
  if (!options_.ca_file.empty() || !options_.ca_folder.empty()) {
    // The one that is not named is set to none: otherwise libcurl's own would count, too.
    const auto named = [](const std::string& path) {
      return path.empty() ? nullptr : path.c_str();
    };
    set.Set(CURLOPT_CAINFO, named(options_.ca_file));
    set.Set(CURLOPT_CAPATH, named(options_.ca_folder));
  }
  set.Set(CURLOPT_SOCKOPTFUNCTION, &OnSocket);
  set.Set(CURLOPT_SOCKOPTDATA, this);
  set.Set(CURLOPT_HEADERFUNCTION, &OnHeader);
  set.Set(CURLOPT_HEADERDATA, this);
  set.Set(CURLOPT_WRITEFUNCTION, &OnBody);
  set.Set(CURLOPT_WRITEDATA, this);
  set.Set(CURLOPT_PRIVATE, reinterpret_cast<void*>(call.value()));
  if (!set.ok()) return absl::InvalidArgumentError("libcurl refused an option of a request");
  return absl::OkStatus();
}

absl::Status CurlEngine::Transfer::SetBody() {
  EasyOptions set(easy_.get());
  if (request_.method == "PUT" || body_size_ > 0) {
    set.Set(CURLOPT_UPLOAD, 1L);
    set.Set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(body_size_));
    set.Set(CURLOPT_READFUNCTION, &OnRead);
    set.Set(CURLOPT_READDATA, this);
    set.Set(CURLOPT_SEEKFUNCTION, &OnSeek);  // sent again, when a connection died while idle
    set.Set(CURLOPT_SEEKDATA, this);
    set.Set(CURLOPT_EXPECT_100_TIMEOUT_MS, static_cast<long>(options_.continue_within.count()));
  } else if (request_.method == "HEAD") {
    set.Set(CURLOPT_NOBODY, 1L);
  }
  set.Set(CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  if (!set.ok()) return absl::InvalidArgumentError("libcurl refused the method of a request");
  return absl::OkStatus();
}

absl::Status CurlEngine::Transfer::SetHeaders() {
  std::vector<std::string> lines;
  for (const auto& [name, value] : request_.headers) {
    for (const char c : absl::StrCat(name, value)) {
      KVKEEP_CHECK(!absl::ascii_iscntrl(static_cast<unsigned char>(c)));
    }
    // ';' is libcurl's word for a header without a value.
    lines.push_back(value.empty() ? absl::StrCat(name, ";") : absl::StrCat(name, ": ", value));
  }
  const bool asks = body_size_ >= options_.expect_continue_from_bytes && body_size_ > 0;
  lines.push_back(asks ? "Expect: 100-continue" : "Expect:");
  lines.push_back("Accept:");
  for (const std::string& line : lines) {
    curl_slist* const longer = curl_slist_append(list_.get(), line.c_str());
    if (longer == nullptr) return absl::ResourceExhaustedError("libcurl has no memory for a head");
    static_cast<void>(list_.release());
    list_.reset(longer);
  }
  EasyOptions set(easy_.get());
  set.Set(CURLOPT_HTTPHEADER, list_.get());
  return set.ok() ? absl::OkStatus() : absl::InvalidArgumentError("libcurl refused headers");
}

absl::Status CurlEngine::Transfer::Late(MonotonicTime now) {
  const bool answered = answer_.head.status >= 200;
  if (!sent_at_.has_value() && moved_ >= body_size_) sent_at_ = body_size_ == 0 ? begun_ : now;
  // A server that thinks about a whole body is not slow; only a body on its way counts.
  const bool moves = answered || (moved_ > 0 && moved_ < body_size_);
  if (!moves) {
    stretch_from_.reset();
    moved_at_.reset();
  } else {
    if (!moved_at_.has_value() || moved_ != moved_seen_) moved_at_ = now;
    moved_seen_ = moved_;
    if (!stretch_from_.has_value()) {
      stretch_from_ = now;
      moved_before_ = moved_;
    }
  }
  const bool still = moves && now >= *moved_at_ + options_.slow_for;
  if (now >= request_.deadline) {
    answer_.slow = moves && !still;
    return absl::DeadlineExceededError("its deadline has passed");
  }
  if (!answered && sent_at_.has_value() && now >= *sent_at_ + request_.first_byte_within) {
    return absl::DeadlineExceededError(
        absl::StrCat("no answer within ", request_.first_byte_within.count(), " ms"));
  }
  return still && least_bytes_per_second() > 0 ? TooSlow() : absl::OkStatus();
}

bool CurlEngine::Transfer::IsSlow(MonotonicTime now) {
  if (!stretch_from_.has_value() || now < *stretch_from_ + options_.slow_for) return false;
  const double seconds = std::chrono::duration<double>(now - *stretch_from_).count();
  const double least = static_cast<double>(least_bytes_per_second()) * seconds;
  if (static_cast<double>(moved_ - moved_before_) < least) return true;
  MeasureAnew(now);
  return false;
}

bool CurlEngine::Transfer::GoesBefore(const Transfer& other) const {
  const bool up = body_size_ > 0, others_up = other.body_size_ > 0;
  return up != others_up ? others_up : moved_ < other.moved_;
}

absl::Status CurlEngine::Transfer::GiveUpSlow() {
  answer_.slow = true;
  return TooSlow();
}

absl::Status CurlEngine::Transfer::TooSlow() const {
  return absl::DeadlineExceededError(
      absl::StrCat("its body moves slower than ", least_bytes_per_second(), " bytes/s"));
}

void CurlEngine::Transfer::MeasureAnew(MonotonicTime now) {
  if (!stretch_from_.has_value()) return;
  stretch_from_ = now;
  moved_before_ = moved_;
}

MonotonicTime CurlEngine::Transfer::WakeAt() const {
  MonotonicTime at = request_.deadline;
  if (answer_.head.status < 200 && sent_at_.has_value()) {
    at = std::min<MonotonicTime>(at, *sent_at_ + request_.first_byte_within);
  }
  for (const auto& from : {stretch_from_, moved_at_}) {
    const bool measured = from.has_value() && least_bytes_per_second() > 0;
    if (measured) at = std::min<MonotonicTime>(at, *from + options_.slow_for);
  }
  return at;
}

size_t CurlEngine::Transfer::Stop(absl::Status why) {
  stopped_ = std::move(why);
  stop_ = true;
  return 0;  // fewer than there were: libcurl ends the transfer
}

size_t CurlEngine::Transfer::TakeHeader(absl::string_view line) {
  head_bytes_ += line.size();
  if (head_bytes_ > options_.max_head_bytes) {
    return Stop(absl::ResourceExhaustedError(
        absl::StrCat("the head of its answer has more than ", options_.max_head_bytes, " bytes")));
  }
  const absl::string_view text = absl::StripAsciiWhitespace(line);
  if (absl::StartsWith(line, "HTTP/")) {  // a new head: the one before was of a 1xx
    answer_.head = {};
    const size_t blank = text.find(' ');
    int status = 0;
    if (blank == absl::string_view::npos ||
        !absl::SimpleAtoi(text.substr(blank + 1, 3), &status) || status < 100 || status > 599) {
      return Stop(absl::DataLossError("its answer has no status"));
    }
    answer_.head.status = status;
    return line.size();
  }
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos) return line.size();
  answer_.head.headers.push_back(
      {std::string(text.substr(0, colon)),
       std::string(absl::StripAsciiWhitespace(text.substr(colon + 1)))});
  uint64_t bytes = 0;
  if (absl::EqualsIgnoreCase(answer_.head.headers.back().name, "content-length") &&
      absl::SimpleAtoi(answer_.head.headers.back().value, &bytes)) {
    answer_.head.content_bytes = bytes;
  }
  return line.size();
}

size_t CurlEngine::Transfer::TakeBody(std::span<const std::byte> bytes) {
  moved_ += bytes.size();
  if (request_.sink == nullptr || !IsSuccessStatus(answer_.head.status)) {
    KVKEEP_CHECK(answer_.text.size() <= options_.max_text_bytes);
    const size_t room = options_.max_text_bytes - answer_.text.size();
    const size_t kept = std::min<size_t>(room, bytes.size());
    answer_.text.append(reinterpret_cast<const char*>(bytes.data()), kept);
    // Dropped bytes have a limit too: an error's text without end is no answer.
    if (moved_ > body_size_ + 16 * options_.max_text_bytes) {
      return Stop(absl::ResourceExhaustedError("the text of its answer does not end"));
    }
    return bytes.size();
  }
  if (!head_done_) {
    head_done_ = true;
    if (absl::Status begun = request_.sink->Begin(answer_.head); !begun.ok()) return Stop(begun);
  }
  if (answer_.body_bytes + bytes.size() > request_.max_body_bytes) {
    return Stop(absl::ResourceExhaustedError(
        absl::StrCat("its body has more than ", request_.max_body_bytes, " bytes")));
  }
  if (absl::Status taken = request_.sink->Take(bytes); !taken.ok()) return Stop(taken);
  answer_.body_bytes += bytes.size();
  return bytes.size();
}

size_t CurlEngine::Transfer::GiveBody(char* to, size_t most) {
  size_t given = 0;
  while (given < most && run_ < request_.body.size()) {
    const auto left = request_.body[run_].subspan(in_run_);
    const size_t bytes = std::min(left.size(), most - given);
    if (bytes > 0) std::memcpy(to + given, left.data(), bytes);
    given += bytes;
    in_run_ += bytes;
    if (in_run_ < request_.body[run_].size()) continue;
    ++run_;
    in_run_ = 0;
  }
  at_ += given;
  KVKEEP_CHECK(at_ <= body_size_);
  moved_ = std::max(moved_, at_);
  return given;
}

bool CurlEngine::Transfer::SeekBody(uint64_t to) {
  if (to > body_size_) return false;
  at_ = to;
  for (run_ = 0; run_ < request_.body.size() && to >= request_.body[run_].size(); ++run_) {
    to -= request_.body[run_].size();
  }
  in_run_ = to;
  return true;
}

absl::Status CurlEngine::Transfer::Finished(CURLcode code) const {
  if (stop_) return stopped_;
  const auto text = [&] { return absl::StrCat("libcurl: ", curl_easy_strerror(code)); };
  switch (code) {
    case CURLE_OK: return absl::OkStatus();
    case CURLE_OPERATION_TIMEDOUT: return absl::UnavailableError("no connection in time");
    case CURLE_OUT_OF_MEMORY: return absl::ResourceExhaustedError(text());
    case CURLE_URL_MALFORMAT: return absl::InvalidArgumentError(text());
    case CURLE_UNSUPPORTED_PROTOCOL:  // HTTP/0.9: whatever it is that was sent
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING: return absl::DataLossError(text());
    case CURLE_PEER_FAILED_VERIFICATION:
      return absl::FailedPreconditionError(text());
    case CURLE_SSL_CACERT_BADFILE:
      return absl::FailedPreconditionError(absl::StrCat(text(), ": ", options_.ca_file));
    default: break;
  }
  long by_proxy = 0;  // what it answered to CONNECT
  curl_easy_getinfo(easy_.get(), CURLINFO_HTTP_CONNECTCODE, &by_proxy);
  if (by_proxy != 0 && !IsSuccessStatus(static_cast<int>(by_proxy))) {
    return absl::UnavailableError(absl::StrCat("g4.proxy answered CONNECT with ", by_proxy));
  }
  return absl::UnavailableError(text());
}

void CurlEngine::Transfer::Answer(absl::Status status, MonotonicTime now) {
  if (easy_ != nullptr) {
    curl_off_t connected = 0, first = 0, sent = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_CONNECT_TIME_T, &connected);
    curl_easy_getinfo(easy_.get(), CURLINFO_STARTTRANSFER_TIME_T, &first);
    curl_easy_getinfo(easy_.get(), CURLINFO_SIZE_UPLOAD_T, &sent);
    answer_.connected = connected > 0 || answer_.head.status > 0;
    answer_.first_byte = std::chrono::microseconds(first);
    answer_.sent_bytes = static_cast<uint64_t>(sent);
  }
  // A success without body bytes: the sink has not been begun.
  if (status.ok() && request_.sink != nullptr && !head_done_ &&
      IsSuccessStatus(answer_.head.status)) {
    status = request_.sink->Begin(answer_.head);
  }
  answer_.status = std::move(status);
  answer_.total = now - begun_;
  std::move(done_)(std::move(answer_));
}

size_t CurlEngine::Transfer::OnHeader(char* line, size_t size, size_t count, void* self) {
  return static_cast<Transfer*>(self)->TakeHeader({line, size * count});
}
size_t CurlEngine::Transfer::OnBody(char* bytes, size_t size, size_t count, void* self) {
  return static_cast<Transfer*>(self)->TakeBody(std::as_bytes(std::span(bytes, size * count)));
}
size_t CurlEngine::Transfer::OnRead(char* to, size_t size, size_t count, void* self) {
  return static_cast<Transfer*>(self)->GiveBody(to, size * count);
}
int CurlEngine::Transfer::OnSeek(void* self, curl_off_t offset, int origin) {
  const bool sought = origin == SEEK_SET && offset >= 0 &&
                      static_cast<Transfer*>(self)->SeekBody(static_cast<uint64_t>(offset));
  return sought ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL;
}
int CurlEngine::Transfer::OnSocket(void* self, curl_socket_t socket, curlsocktype) {
  const auto ms = static_cast<unsigned int>(
      static_cast<Transfer*>(self)->options_.unacknowledged_for.count());
  // A socket of another kind has no such option; then deadlines alone end it.
  static_cast<void>(setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms)));
  return CURL_SOCKOPT_OK;
}

}  // namespace kvkeep
