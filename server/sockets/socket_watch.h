// SocketWatch: checks whether the paths of the daemon's sockets still lead to them. A socket whose
// file is gone serves the clients it has, but no new client finds it; the daemon itself would not
// notice.
//
// Look has the listener put such a socket at its path again. A socket that cannot be put there,
// because another daemon listens there or the directory is gone, is lost; each Look tries again.
// Thread-safe.
#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/sockets/listening_socket.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

class SocketWatch {
 public:
  using Done = std::function<void(const absl::Status&)>;
  // Posts the renewal of the socket to the thread that accepts, which then calls Done with the
  // result. Does not wait. Done must not be called once this is gone.
  using Renew = std::function<void(Done)>;

  void Watch(std::shared_ptr<const SocketFile> file, Renew renew);
  // After this returns, no Renew is called.
  void ForgetAll();

  // Call every few seconds.
  void Look();

  struct News {
    std::string path;
    absl::Status status;  // OK: its path leads to it again; otherwise why not
  };
  // Returns the changes since the last call.
  std::vector<News> TakeNews();
  size_t lost() const;        // sockets that no new client can reach now
  uint64_t renewals() const;  // successful ones

 private:
  struct Watched {
    std::shared_ptr<const SocketFile> file;
    Renew renew;
    bool lost = false;
    bool renewing = false;
    std::string told;  // why, as News had it
  };

  Watched* Find(const SocketFile* file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NoteInPlace(const SocketFile* file);
  void NoteGone(const SocketFile* file);
  void NoteRenewed(const SocketFile* file, const absl::Status& status);

  mutable Mutex mu_;
  std::vector<Watched> watched_ ABSL_GUARDED_BY(mu_);
  std::vector<News> news_ ABSL_GUARDED_BY(mu_);
  uint64_t renewals_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep
