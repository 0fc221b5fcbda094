// DirectoryStore: ObjectStore over a directory that machines share, for a fleet with a file system
// and no bucket. An object is a file of its name below the directory.
//
// A put writes a file of another name below `.new/`, syncs it, and then gives it its name: linked
// where nothing may be replaced, renamed else, so that no half of an object is ever seen. Inode,
// time and size name a version: a file is never written to again. A crash of the server may lose
// objects that were put. Modes, the mark and leftover files: shared_directory.h.
//
// The first request opens the directory; after a failure it is opened anew. If it is absent, or
// without its mark, the store is away. A file that this user may not read or delete is refused by
// itself; where it may not write, no puts are taken, and reads go on.
//
// Work is done on an executor of the owner's, which blocks there as long as the file system does:
// deadlines and cancels are looked at between steps of 1 MiB, and cannot end a system call.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <memory>
#include <string>

#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/base/random.h"
#include "tiers/objects/object_store.h"
#include "tiers/objects/shared_directory.h"

namespace kvkeep {

struct DirectoryStoreOptions {
  std::string path;
  std::string mark;           // the text that the directory's mark must have; empty: any
  std::string writer;         // owner of its files below `.new/`; empty: nobody
  size_t max_waiting = 4096;  // requests; more are refused
  std::chrono::milliseconds longest_request{60'000};
  // How long the directory is not asked after it failed, and not put to after it was full.
  std::chrono::milliseconds away_for{5000}, full_for{60'000};
};

struct DirectoryStoreCounters {
  uint64_t leftover_files = 0, leftover_bytes = 0;  // of its writer's earlier runs, removed
  uint64_t unopened = 0;  // requests that failed as the directory could not be opened
};

class DirectoryStore final : public ObjectStore {
 public:
  // All pointers outlive it. Does no I/O.
  DirectoryStore(const DirectoryStoreOptions& options, Executor* executor, Clock* clock,
                 RandomSource* random);
  ~DirectoryStore() override;

  ObjectCall Get(GetObject get, ObjectSink* sink, Done done) override;
  ObjectCall Put(PutObject put, Done done) override;
  ObjectCall Delete(DeleteObject request, Done done) override;
  // Looks through all of the directory for each page.
  ObjectCall List(ListObjects list, ListDone done) override;
  void Cancel(ObjectCall call) override;
  ObjectStoreHealth health() const override;
  DirectoryStoreCounters counters() const;

 private:
  struct Request;

  using Work = absl::AnyInvocable<void(Request&) &&>;

  ObjectCall HandOver(std::shared_ptr<Request> request, MonotonicTime deadline, Work work);
  void Run(Request& request);
  // Opens the directory for the request, unless it is open. Returns false with the reason as the
  // request's outcome.
  bool Open(Request& request);
  // Returns whether the request has to end early; then its outcome is set.
  bool Ends(Request& request) const;
  void Note(const Request& request);

  void DoGet(Request& request, const GetObject& get, ObjectSink* sink);
  void ReadRange(Request& request, int fd, ByteRange range, ObjectSink* sink);
  void DoPut(Request& request, const PutObject& put);
  bool Write(Request& request, int fd, const PutObject& put);
  void Publish(Request& request, const PutObject& put, const std::string& from);
  void DoDelete(Request& request, const std::string& name);
  void DoList(Request& request, const ListObjects& list);

  const DirectoryStoreOptions options_;
  Executor& executor_;
  Clock& clock_;
  RandomSource& random_;
  const uint64_t run_;  // tells its files from those of earlier runs

  mutable Mutex mu_;
  CondVar ended_;
  uint64_t last_call_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<ObjectCall, std::shared_ptr<Request>> requests_ ABSL_GUARDED_BY(mu_);
  // Null: not open. A request that works in it holds it.
  std::shared_ptr<const SharedDirectory> directory_ ABSL_GUARDED_BY(mu_);
  DirectoryStoreCounters counters_ ABSL_GUARDED_BY(mu_);
  MonotonicTime away_until_ ABSL_GUARDED_BY(mu_){MonotonicTime::min()};
  MonotonicTime full_until_ ABSL_GUARDED_BY(mu_){MonotonicTime::min()};
  bool misconfigured_ ABSL_GUARDED_BY(mu_) = false;
  ObjectError error_ ABSL_GUARDED_BY(mu_), put_error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
