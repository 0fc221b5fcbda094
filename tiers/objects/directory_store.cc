#include "tiers/objects/directory_store.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>

#include "tiers/base/check.h"
#include "tiers/base/crc32c.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

constexpr size_t kStepBytes = kMiB;
constexpr const char* kBadDigest = "BadDigest";

// Returns whether no part of the name begins with a dot. So no part is ".." or one of this store's
// own files.
bool IsFileName(absl::string_view name) {
  if (name.empty() || name.size() > kMaxObjectNameBytes) return false;
  for (const absl::string_view part : absl::StrSplit(name, '/')) {
    if (part.empty() || part.front() == '.' || absl::StrContains(part, '\0')) return false;
  }
  return true;
}

ObjectHead HeadOf(const struct stat& is) {
  return {.etag = absl::StrCat("\"", is.st_ino, "-", is.st_mtim.tv_sec, ".", is.st_mtim.tv_nsec,
                               "-", is.st_size, "\""),
          .object_bytes = static_cast<uint64_t>(is.st_size),
          .modified = UnixSeconds(is.st_mtim.tv_sec)};
}

// Makes the folders that a name lies in.
void MakeFolders(const SharedDirectory& directory, const std::string& name) {
  for (size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
    static_cast<void>(MakeFolder(directory, name.substr(0, at)));
  }
}

// Returns whether names below the directory can be looked up at all.
bool CanEnter(const SharedDirectory& directory) {
  return faccessat(directory.root.get(), ".", X_OK, AT_EACCESS) == 0;
}

}  // namespace

struct DirectoryStore::Request {
  ObjectCall call;
  MonotonicTime begun{0}, deadline{0};
  Work work;
  Done done;
  ListDone list_done;
  std::atomic<bool> claimed{false};    // by the thread that answers it
  std::atomic<bool> cancelled{false};
  bool puts = false;
  std::shared_ptr<const SharedDirectory> directory;  // while it has its turn
  ObjectAnswer answer;
  ObjectListing page;

  int root() const { return directory->root.get(); }
  void Fail(int error, absl::string_view what) {
    answer.outcome = OutcomeOfErrno(error);
    answer.error = ErrorOfErrno(error, what);
  }
  // Fails the request at a file or folder. If access was denied, the message names its owner.
  void FailAt(int error, absl::string_view what, const std::string& name) {
    Fail(error, what);
    if (error != EACCES && error != EPERM) return;
    absl::StrAppend(&answer.error.message, ": ", OwnerOf(*directory, name));
    // A failure at one file of another user says nothing about other files.
    if (!puts && CanEnter(*directory)) answer.outcome = ObjectOutcome::kRefused;
  }
  void Answer() {
    if (!list_done) return std::move(done)(std::move(answer));
    if (!answer.ok()) page = {};
    std::move(list_done)(std::move(answer), std::move(page));
  }
};

DirectoryStore::DirectoryStore(const DirectoryStoreOptions& options, Executor* executor,
                               Clock* clock, RandomSource* random)
    : options_(options),
      executor_(*executor),
      clock_(*clock),
      random_(*random),
      run_(random->NextU64()) {
  KVKEEP_CHECK(options.max_waiting > 0 && options.longest_request.count() > 0);
}

// Requests that have their turn end soon. The others are answered here; their tasks do nothing.
DirectoryStore::~DirectoryStore() {
  while (true) {
    std::shared_ptr<Request> waits;
    {
      MutexLock lock(&mu_);
      for (const auto& [call, request] : requests_) {
        request->cancelled = true;
        if (!request->claimed.exchange(true)) {
          waits = request;
          break;
        }
      }
      if (waits == nullptr) {
        if (requests_.empty()) return;
        ended_.Wait(&mu_);
        continue;
      }
      KVKEEP_CHECK(requests_.erase(waits->call) == 1);
    }
    waits->answer.outcome = ObjectOutcome::kCancelled;
    waits->Answer();
  }
}

// ---- orders

ObjectCall DirectoryStore::HandOver(std::shared_ptr<Request> request, MonotonicTime deadline,
                                    Work work) {
  KVKEEP_CHECK((request->done != nullptr) != (request->list_done != nullptr));
  request->begun = clock_.Now();
  request->deadline = std::min<MonotonicTime>(deadline, request->begun + options_.longest_request);
  request->work = std::move(work);
  ObjectCall call;
  {
    MutexLock lock(&mu_);
    call = request->call = ObjectCall(++last_call_);
    if (requests_.size() >= options_.max_waiting) {
      request->work = [](Request& refused) {
        refused.answer.outcome = ObjectOutcome::kThrottled;
        refused.answer.error.code = "TooManyWait";
      };
    }
    KVKEEP_CHECK(requests_.emplace(call, request).second);
  }
  executor_.Post([this, request] {
    if (!request->claimed.exchange(true)) Run(*request);
  });
  return call;
}

ObjectCall DirectoryStore::Get(GetObject get, ObjectSink* sink, Done done) {
  KVKEEP_CHECK(sink != nullptr && (!get.range.has_value() || get.range->bytes > 0));
  auto request = std::make_shared<Request>();
  request->done = std::move(done);
  const MonotonicTime deadline = get.deadline;
  return HandOver(std::move(request), deadline, [this, get = std::move(get), sink](Request& r) {
    DoGet(r, get, sink);
  });
}

ObjectCall DirectoryStore::Put(PutObject put, Done done) {
  auto request = std::make_shared<Request>();
  request->done = std::move(done);
  request->puts = true;
  const MonotonicTime deadline = put.deadline;
  return HandOver(std::move(request), deadline,
                  [this, put = std::move(put)](Request& r) { DoPut(r, put); });
}

ObjectCall DirectoryStore::Delete(DeleteObject deletion, Done done) {
  auto request = std::make_shared<Request>();
  request->done = std::move(done);
  return HandOver(std::move(request), deletion.deadline,
                  [this, name = std::move(deletion.name)](Request& r) { DoDelete(r, name); });
}

ObjectCall DirectoryStore::List(ListObjects list, ListDone done) {
  auto request = std::make_shared<Request>();
  request->list_done = std::move(done);
  const MonotonicTime deadline = list.deadline;
  return HandOver(std::move(request), deadline,
                  [this, list = std::move(list)](Request& r) { DoList(r, list); });
}

void DirectoryStore::Cancel(ObjectCall call) {
  MutexLock lock(&mu_);
  const auto at = requests_.find(call);
  if (at != requests_.end()) at->second->cancelled = true;
}

void DirectoryStore::Run(Request& request) {
  KVKEEP_CHECK(request.claimed);
  if (!Ends(request)) {
    ++request.answer.attempts;
    if (Open(request)) std::move(request.work)(request);
  }
  request.directory.reset();
  request.answer.total = clock_.Now() - request.begun;
  Note(request);
  const ObjectCall call = request.call;
  request.Answer();
  MutexLock lock(&mu_);
  KVKEEP_CHECK(requests_.erase(call) == 1);
  ended_.NotifyAll();
}

// Two requests may open the directory at the same time. The first one's is kept.
bool DirectoryStore::Open(Request& request) {
  {
    MutexLock lock(&mu_);
    request.directory = directory_;
  }
  if (request.directory != nullptr) return true;
  auto opened =
      std::make_shared<const SharedDirectory>(OpenSharedDirectory(options_.path, options_.mark));
  Leftovers removed;
  if (opened->outcome == ObjectOutcome::kOk) {
    removed = RemoveOwnLeftovers(*opened, options_.writer, run_);
  }
  MutexLock lock(&mu_);
  counters_.leftover_files += removed.files;
  counters_.leftover_bytes += removed.bytes;
  if (opened->outcome != ObjectOutcome::kOk) {
    ++counters_.unopened;
    request.puts = false;  // so that Note counts the failure for reads, too
    request.answer.outcome = opened->outcome;
    request.answer.error = opened->error;
    return false;
  }
  if (directory_ == nullptr) directory_ = std::move(opened);
  request.directory = directory_;
  return true;
}

bool DirectoryStore::Ends(Request& request) const {
  if (request.cancelled) {
    request.answer.outcome = ObjectOutcome::kCancelled;
    return true;
  }
  if (clock_.Now() < request.deadline) return false;
  request.answer.outcome = ObjectOutcome::kLate;
  return true;
}

// ---- get

void DirectoryStore::DoGet(Request& request, const GetObject& get, ObjectSink* sink) {
  if (!IsFileName(get.name)) return request.Fail(ENAMETOOLONG, "its name");
  const UniqueFd file(openat(request.root(), get.name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat is {};
  if (!file.valid() || fstat(file.get(), &is) != 0) {
    return request.FailAt(errno, "opening it", get.name);
  }
  if (!S_ISREG(is.st_mode)) return request.Fail(EISDIR, "it is no file");
  ObjectAnswer& answer = request.answer;
  answer.head = HeadOf(is);
  if (!get.if_match.empty() && get.if_match != answer.head.etag) {
    answer.outcome = ObjectOutcome::kChanged;
    return;
  }
  const uint64_t bytes = *answer.head.object_bytes;
  ByteRange range = get.range.value_or(ByteRange{0, bytes});
  if (get.range.has_value() && range.first >= bytes) {
    answer.outcome = ObjectOutcome::kShort;
    return;
  }
  range.bytes = std::min(range.bytes, bytes - range.first);
  ReadRange(request, file.get(), range, sink);
}

void DirectoryStore::ReadRange(Request& request, int fd, ByteRange range, ObjectSink* sink) {
  ObjectAnswer& answer = request.answer;
  answer.first_byte = clock_.Now() - request.begun;
  absl::Status said = sink->Begin(answer.head);
  std::vector<std::byte> buffer(std::min<uint64_t>(kStepBytes, range.bytes));
  while (said.ok() && answer.given < range.bytes) {
    if (Ends(request)) return;
    const ssize_t read =
        pread(fd, buffer.data(), std::min<uint64_t>(buffer.size(), range.bytes - answer.given),
              static_cast<off_t>(range.first + answer.given));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return request.Fail(read == 0 ? EIO : errno, "reading it");
    answer.given += static_cast<uint64_t>(read);
    said = sink->Take(std::span(buffer).first(static_cast<size_t>(read)));
  }
  answer.outcome = said.ok() ? ObjectOutcome::kOk : ObjectOutcome::kCancelled;
  answer.error.message = std::string(said.message());
}

// ---- put

void DirectoryStore::DoPut(Request& request, const PutObject& put) {
  if (!IsFileName(put.name)) return request.Fail(ENAMETOOLONG, "its name");
  if (put.if_absent && faccessat(request.root(), put.name.c_str(), F_OK, 0) == 0) {
    request.answer.outcome = ObjectOutcome::kExists;
    return;
  }
  const std::string from = NameOfNewFile(options_.writer, run_, random_.NextU64());
  const mode_t mode = request.directory->file_mode;
  const auto create = [&] {
    return openat(request.root(), from.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  };
  UniqueFd file(create());
  int error = file.valid() ? 0 : errno;
  if (error == ENOENT) {
    const int made = MakeFolder(*request.directory, SharedDirectory::kNewFolder);
    if (made == 0 || made == EEXIST) file = UniqueFd(create());
    error = file.valid() ? 0 : made == 0 || made == EEXIST ? errno : made;
  }
  if (error != 0) {
    request.FailAt(error, "making its file", from);
    // The directory was removed meanwhile.
    if (error == ENOENT) request.answer.outcome = ObjectOutcome::kBroken;
    return;
  }
  static_cast<void>(fchmod(file.get(), mode));  // undoes the umask, on file systems with modes
  const bool written = Write(request, file.get(), put);
  file.Reset();
  if (written) Publish(request, put, from);
  static_cast<void>(unlinkat(request.root(), from.c_str(), 0));  // a renamed file is gone already
}

bool DirectoryStore::Write(Request& request, int fd, const PutObject& put) {
  uint32_t crc = 0;
  for (std::span<const std::byte> run : put.body) {
    while (!run.empty()) {
      if (Ends(request)) return false;
      const ssize_t wrote = write(fd, run.data(), std::min(kStepBytes, run.size()));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        request.Fail(wrote == 0 ? EIO : errno, "writing it");
        return false;
      }
      const auto part = run.first(static_cast<size_t>(wrote));
      if (put.crc32c.has_value()) crc = Crc32c(part, crc);
      run = run.subspan(part.size());
    }
  }
  if (put.crc32c.has_value() && crc != *put.crc32c) {
    request.answer.outcome = ObjectOutcome::kBroken;
    request.answer.error.code = kBadDigest;
    return false;
  }
  struct stat is {};
  if (fsync(fd) != 0 || fstat(fd, &is) != 0) {
    request.Fail(errno, "syncing it");
    return false;
  }
  request.answer.head = HeadOf(is);
  return true;
}

void DirectoryStore::Publish(Request& request, const PutObject& put, const std::string& from) {
  const auto publish = [&] {
    const int root = request.root();
    return put.if_absent ? linkat(root, from.c_str(), root, put.name.c_str(), 0)
                         : renameat(root, from.c_str(), root, put.name.c_str());
  };
  int failed = publish();
  if (failed != 0 && errno == ENOENT) {
    MakeFolders(*request.directory, put.name);
    failed = publish();
  }
  if (failed != 0) return request.FailAt(errno, "giving it its name", put.name);
  request.answer.outcome = ObjectOutcome::kOk;
}

void DirectoryStore::DoDelete(Request& request, const std::string& name) {
  if (!IsFileName(name)) return request.Fail(ENAMETOOLONG, "its name");
  if (unlinkat(request.root(), name.c_str(), 0) != 0 && errno != ENOENT && errno != ENOTDIR) {
    return request.FailAt(errno, "removing it", name);
  }
  request.answer.outcome = ObjectOutcome::kOk;
}

// ---- list

void DirectoryStore::DoList(Request& request, const ListObjects& list) {
  namespace fs = std::filesystem;
  std::map<std::string, ListedObject> page;  // the page's objects, and one more
  std::error_code error;
  const fs::path root(options_.path);
  // All names with the prefix lie below its folder. Folders that we may not read are skipped.
  const size_t folder = list.prefix.rfind('/');
  const fs::path top = folder == std::string::npos ? root : root / list.prefix.substr(0, folder);
  constexpr auto kOptions = fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator at(top, kOptions, error);
  if (error == std::errc::no_such_file_or_directory && fs::exists(root)) error.clear();
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    if (Ends(request)) return;
    const std::string name = at->path().lexically_relative(root).string();
    if (at->path().filename().string().front() == '.') {
      at.disable_recursion_pending();
      continue;
    }
    struct stat is {};
    if (name <= list.token || !absl::StartsWith(name, list.prefix) ||
        fstatat(request.root(), name.c_str(), &is, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(is.st_mode)) {
      continue;
    }
    page[name] = {name, static_cast<uint64_t>(is.st_size), UnixSeconds(is.st_mtim.tv_sec)};
    if (page.size() > ObjectListing::kMaxObjects + 1) page.erase(std::prev(page.end()));
  }
  if (error) return request.Fail(error.value(), "listing the directory");
  for (auto& [name, object] : page) {
    if (request.page.objects.size() == ObjectListing::kMaxObjects) {
      request.page.next_token = request.page.objects.back().name;
      break;
    }
    request.page.objects.push_back(std::move(object));
  }
  request.answer.outcome = ObjectOutcome::kOk;
}

// ---- health

// A directory that cannot be written, or is full, can still be read.
void DirectoryStore::Note(const Request& request) {
  if (request.answer.error.code == kBadDigest) return;  // it is about the bytes, not the directory
  const ObjectOutcome outcome = request.answer.outcome;
  MutexLock lock(&mu_);
  if (outcome == ObjectOutcome::kFull ||
      (request.puts && outcome == ObjectOutcome::kMisconfigured)) {
    full_until_ = clock_.Now() + options_.full_for;
    put_error_ = request.answer.error;
    return;
  }
  if (outcome != ObjectOutcome::kBroken && outcome != ObjectOutcome::kMisconfigured) return;
  directory_.reset();  // when it is back, it may be another one
  away_until_ = clock_.Now() + options_.away_for;
  misconfigured_ = outcome == ObjectOutcome::kMisconfigured;
  error_ = request.answer.error;
}

ObjectStoreHealth DirectoryStore::health() const {
  const MonotonicTime now = clock_.Now();
  MutexLock lock(&mu_);
  ObjectStoreHealth health;
  health.takes_puts = now >= full_until_;
  if (now < away_until_) {
    health.state = misconfigured_ ? ObjectStoreHealth::State::kMisconfigured
                                  : ObjectStoreHealth::State::kAway;
    health.retry_in = away_until_ - now;
  }
  if (health.writable()) return health;
  health.error = health.readable() ? put_error_ : error_;
  health.what_to_do = AdviceForDirectory(health.error.code, options_.path);
  return health;
}

DirectoryStoreCounters DirectoryStore::counters() const {
  MutexLock lock(&mu_);
  return counters_;
}

}  // namespace kvkeep
