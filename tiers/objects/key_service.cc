#include "tiers/objects/key_service.h"

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <future>

namespace kvkeep {
namespace {

constexpr size_t kMaxUrlBytes = 2048;

// ECS, EKS, and the metadata of instances.
constexpr absl::string_view kLinkHosts[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]",
                                            "169.254.169.254", "[fd00:ec2::254]"};

bool IsOfThisMachine(absl::string_view host) {
  if (std::find(std::begin(kLinkHosts), std::end(kLinkHosts), host) != std::end(kLinkHosts)) {
    return true;
  }
  in_addr address{};
  const bool ipv4 = inet_pton(AF_INET, std::string(host).c_str(), &address) == 1;
  return host == "localhost" || host == "[::1]" || (ipv4 && (ntohl(address.s_addr) >> 24) == 127);
}

// Returns whether all parsers read the URL alike: it has no user, backslash or fragment.
bool IsPlain(absl::string_view url) {
  return std::all_of(url.begin(), url.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::StrContains("-._~:/?[]!$&'()*+,;=%", absl::string_view(&c, 1));
  });
}

}  // namespace

absl::Status CheckKeyServiceUrl(absl::string_view name, absl::string_view url) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(name, " ", why));
  };
  if (url.size() > kMaxUrlBytes) {
    return refuse(absl::StrCat("has ", url.size(), " characters; the most are ", kMaxUrlBytes));
  }
  if (!IsPlain(url)) return refuse("holds a user, a fragment, or a character that no URL has");
  absl::string_view rest = url;
  const bool plain = absl::ConsumePrefix(&rest, "http://");
  if (!plain && !absl::ConsumePrefix(&rest, "https://")) {
    return refuse("must begin with https:// or http://");
  }
  absl::string_view host = rest.substr(0, rest.find_first_of("/?"));
  // The colon of a port lies behind the bracket of an IPv6 address.
  const size_t colon = host.rfind(':'), bracket = host.rfind(']');
  if (colon != absl::string_view::npos &&
      (bracket == absl::string_view::npos || colon > bracket)) {
    host = host.substr(0, colon);
  }
  if (host.empty()) return refuse("names no host");
  if (!plain || IsOfThisMachine(host)) return absl::OkStatus();
  return refuse("must begin with https://, as keys would cross the network in plain: by http "
                "only loopback and the addresses of metadata services are asked");
}

absl::StatusOr<KeyService::Answer> KeyService::Ask(HttpRequest request) {
  const auto answered = std::make_shared<std::promise<HttpAnswer>>();
  request.deadline = clock_.Now() + kAnswerWithin;
  request.least_bytes_per_second = 1;
  {
    MutexLock lock(&mu_);
    if (stopped_) return absl::CancelledError("stopped");
    call_ = http_->Start(std::move(request), [answered](HttpAnswer answer) {
      answered->set_value(std::move(answer));
    });
  }
  HttpAnswer answer = answered->get_future().get();
  {
    MutexLock lock(&mu_);
    call_.reset();
  }
  if (!answer.status.ok()) return answer.status;
  return Answer{answer.head.status, std::move(answer.text)};
}

void KeyService::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  if (call_.has_value()) http_->Cancel(*call_);
}

}  // namespace kvkeep
