#include "client/values/options.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

#include "tiers/base/utf8.h"

namespace kvkeep::client {
namespace {

constexpr char kLocalSocketName[] = "local.sock";
constexpr uint32_t kMaxChannels = 16;
constexpr size_t kMaxUnixPathBytes = 107;  // sockaddr_un::sun_path without its zero
constexpr size_t kMaxClientNameBytes = 128;
constexpr std::chrono::milliseconds kMostBusyPoll{1};

std::string UnixPathOf(absl::string_view endpoint) {
  if (!absl::ConsumePrefix(&endpoint, "unix:")) return "";
  absl::ConsumePrefix(&endpoint, "//");
  return std::string(endpoint);
}

// Checks "unix:///path" or "host:port"; `field` names it in the error.
absl::Status CheckEndpoint(absl::string_view field, absl::string_view endpoint) {
  constexpr absl::string_view kUnix = "unix:";
  if (!absl::ConsumePrefix(&endpoint, kUnix)) return absl::OkStatus();
  absl::ConsumePrefix(&endpoint, "//");
  if (!endpoint.empty() && endpoint.size() <= kMaxUnixPathBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": the socket's path has ", endpoint.size(),
                                                 " bytes; 1 to ", kMaxUnixPathBytes,
                                                 " are possible"));
}

}  // namespace

absl::Status ClientOptions::Validate() const {
  if (endpoint.empty()) return absl::InvalidArgumentError("endpoint: empty");
  if (absl::Status bad = CheckEndpoint("endpoint", endpoint); !bad.ok()) return bad;
  if (absl::Status bad = CheckEndpoint("bulk", bulk); !bad.ok()) return bad;
  const bool no_port = bulk.find(':') == std::string::npos;
  if (!bulk.empty() && no_port) {
    return absl::InvalidArgumentError("bulk: must be unix:///path or host:port");
  }
  if (local_socket.size() > kMaxUnixPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat("local_socket: has ", local_socket.size(),
                                                   " bytes; at most ", kMaxUnixPathBytes));
  }
  if (path == PathChoice::kLocal && LocalSocketOf(*this).empty()) {
    return absl::InvalidArgumentError(
        "path: the local path needs local_socket, or an endpoint that is a Unix socket");
  }
  if (client_name.size() > kMaxClientNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("client_name: ", client_name.size(), " bytes; at most ", kMaxClientNameBytes));
  }
  if (!IsUtf8(client_name)) return absl::InvalidArgumentError("client_name: is not UTF-8");
  if (busy_poll.count() < 0 || busy_poll > kMostBusyPoll) {
    return absl::InvalidArgumentError("busy_poll must be between 0 and 1,000 us");
  }
  if (default_deadline.count() <= 0 || backoff_min.count() <= 0 || backoff_max < backoff_min) {
    return absl::InvalidArgumentError(
        "default_deadline and backoff_min must be above 0, backoff_max not below backoff_min");
  }
  if (channels < 1 || channels > kMaxChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat("channels: ", channels, "; 1 to ", kMaxChannels, " are possible"));
  }
  return security.Validate(endpoint);
}

std::string LocalSocketOf(const ClientOptions& options) {
  if (!options.local_socket.empty()) return options.local_socket;
  const std::string path = UnixPathOf(options.endpoint);
  const size_t slash = path.rfind('/');
  if (path.empty()) return "";
  return slash == std::string::npos ? kLocalSocketName
                                    : absl::StrCat(path.substr(0, slash + 1), kLocalSocketName);
}

}  // namespace kvkeep::client
