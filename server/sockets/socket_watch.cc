#include "server/sockets/socket_watch.h"

#include <algorithm>
#include <utility>

namespace kvkeep {

void SocketWatch::Watch(std::shared_ptr<const SocketFile> file, Renew renew) {
  MutexLock lock(&mu_);
  watched_.push_back({.file = std::move(file), .renew = std::move(renew)});
}

void SocketWatch::ForgetAll() {
  MutexLock lock(&mu_);
  watched_.clear();
}

SocketWatch::Watched* SocketWatch::Find(const SocketFile* file) {
  for (Watched& one : watched_) {
    if (one.file.get() == file) return &one;
  }
  return nullptr;
}

void SocketWatch::Look() {
  std::vector<std::shared_ptr<const SocketFile>> files;
  {
    MutexLock lock(&mu_);
    for (const Watched& one : watched_) files.push_back(one.file);
  }
  for (const auto& file : files) {
    if (file->InPlace()) {
      NoteInPlace(file.get());
    } else {
      NoteGone(file.get());
    }
  }
}

void SocketWatch::NoteInPlace(const SocketFile* file) {
  MutexLock lock(&mu_);
  Watched* const one = Find(file);
  if (one == nullptr || !std::exchange(one->lost, false)) return;
  one->told.clear();
  news_.push_back({file->path(), absl::OkStatus()});
}

void SocketWatch::NoteGone(const SocketFile* file) {
  MutexLock lock(&mu_);  // keeps ForgetAll from returning meanwhile; Renew does not wait
  Watched* const one = Find(file);
  if (one == nullptr) return;
  one->lost = true;
  if (std::exchange(one->renewing, true)) return;
  one->renew([this, file](const absl::Status& status) { NoteRenewed(file, status); });
}

void SocketWatch::NoteRenewed(const SocketFile* file, const absl::Status& status) {
  MutexLock lock(&mu_);
  if (status.ok()) ++renewals_;
  Watched* const one = Find(file);
  if (one == nullptr) return;
  one->renewing = false;
  one->lost = !status.ok();
  const std::string why(status.message());
  if (!status.ok() && one->told == why) return;  // the same failure is reported once
  one->told = why;
  news_.push_back({file->path(), status});
}

std::vector<SocketWatch::News> SocketWatch::TakeNews() {
  MutexLock lock(&mu_);
  return std::exchange(news_, {});
}

size_t SocketWatch::lost() const {
  MutexLock lock(&mu_);
  return static_cast<size_t>(std::count_if(watched_.begin(), watched_.end(),
                                           [](const Watched& one) { return one.lost; }));
}

uint64_t SocketWatch::renewals() const {
  MutexLock lock(&mu_);
  return renewals_;
}

}  // namespace kvkeep
