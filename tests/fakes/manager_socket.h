// ManagerSocket: the end of NOTIFY_SOCKET that a service manager listens at.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "tests/fakes/scratch_dir.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep {

class ManagerSocket {
 public:
  // Fields of one message, by name.
  using Message = std::map<std::string, std::string>;

  ManagerSocket();
  const std::string& path() const { return path_; }
  // Returns the next message; none if none came in time.
  std::optional<Message> Next(std::chrono::milliseconds patience = std::chrono::seconds(10));

 private:
  ScratchDir dir_;
  const std::string path_;
  UniqueFd fd_;
};

}  // namespace kvkeep
