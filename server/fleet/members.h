// Members: the other nodes of the fleet, by name and address, from the configuration and from a
// file. Nothing is elected and nobody has to agree: a node that is missing in a list is not asked,
// and a wrong address costs misses.
//
// A file has a line for each node, "NAME=HOST:PORT"; "#" begins a comment. It is read again when it
// changes. A file that cannot be used leaves the earlier nodes. For one thread.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <optional>
#include <string>
#include <vector>

#include "tiers/base/private_file.h"

namespace kvkeep {

struct Member {
  std::string name;     // DNS name in the node's certificate
  std::string address;  // host:port

  bool operator==(const Member&) const = default;
};

inline constexpr size_t kMostMembers = 1024;

// InvalidArgument: it is not "NAME=HOST:PORT".
absl::StatusOr<Member> ParseMember(absl::string_view text);
// Parses a file's text. InvalidArgument names the line.
absl::StatusOr<std::vector<Member>> ParseMembers(absl::string_view text);

class Members {
 public:
  struct Options {
    std::string node;                // this one's name: left out of the members
    std::vector<std::string> peers;  // as ParseMember takes them
    std::string file;                // empty: none
  };
  // InvalidArgument: a peer is not as it must be, or two have one name; the file cannot be read.
  static absl::StatusOr<Members> Load(const Options& options);

  // By name.
  const std::vector<Member>& all() const { return all_; }
  // Reads the file if it changed. Returns none if it did not, and an error if the earlier members
  // stay. Call about every second.
  std::optional<absl::Status> Reload();

 private:
  explicit Members(const Options& options) : options_(options), changes_({options.file}) {}
  absl::StatusOr<std::vector<Member>> Read() const;

  Options options_;
  FileChanges changes_;
  std::vector<Member> all_;
};

}  // namespace kvkeep
