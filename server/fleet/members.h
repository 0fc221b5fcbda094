// Members: the other nodes of the fleet, by name and address, from the configuration and from a
// file. Nothing is elected and nobody has to agree: a node that is missing in a list is not asked,
// and a wrong address costs misses.
//
// A file has a line for each node, "NAME=HOST:PORT"; "#" begins a comment. It is read again when it
// changes. A file that cannot be used leaves the earlier nodes.
//
// A thread of its own looks at the file each second once Watch was called, so that a file system
// that hangs stops nothing but the end of the daemon. Thread-safe.
#pragma once

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tiers/base/mutex.h"
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
  static absl::StatusOr<std::shared_ptr<Members>> Load(const Options& options);

  const std::string& node() const { return options_.node; }  // in lower case
  // By name.
  std::vector<Member> all() const;
  ~Members();
  // Has the file looked at each second. Nothing is watched without a file.
  void Watch();
  // Reads the file if it changed. For one thread.
  void Look();
  // Returns what the looks since the last call have found: none if the file did not change, an
  // error if the earlier members stay.
  std::optional<absl::Status> TakeNews();

 private:
  explicit Members(const Options& options);
  absl::StatusOr<std::vector<Member>> Read() const;

  // Returns false once nobody watches any more.
  bool WaitForTurn();

  const Options options_;
  FileChanges changes_;  // of Look
  mutable Mutex mu_;
  CondVar stop_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Member> all_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> news_ ABSL_GUARDED_BY(mu_);
  std::thread watcher_;
};

}  // namespace kvkeep
