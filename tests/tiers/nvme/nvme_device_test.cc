#include "tiers/nvme/nvme_device.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/posix_io_engine.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

// One store and a directory for its device. Small data files, so that there are several.
struct World {
  ScratchDir scratch;
  ManualExecutor executor;
  PosixIoEngine engine{&executor};
  SeededRandom random{42};
  Uuid store = *Uuid::FromBytes("store");
  MacKey mac_key{};
  NvmeDeviceOptions options{
      .dir = scratch / "device", .capacity_bytes = 64 * kMiB, .file_bytes = 10 * kMiB};

  NvmeDevice::OpenResult Open() {
    return OpenNvmeDevice(options, store, mac_key, &engine, &random);
  }
  std::unique_ptr<NvmeDevice> MustOpen() {
    NvmeDevice::OpenResult result = Open();
    INFO(result.error.status.ToString());
    REQUIRE(result.device != nullptr);
    return std::move(result.device);
  }
  // Checks that opening fails so, with one line that names `part`.
  void MustFail(OpenFailure failure, const std::string& part) {
    const NvmeDevice::OpenResult result = Open();
    INFO(result.error.status.ToString());
    REQUIRE(result.device == nullptr);
    CHECK(result.error.failure == failure);
    const std::string text(result.error.status.message());
    CHECK(text.find(part) != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
  }
  std::string File(const char* name) const { return options.dir + "/" + name; }
};

void FlipByte(const std::string& path, std::streamoff at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(at);
  file.put(byte);
}

uint64_t DirectoryBytes(const std::string& dir) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    struct stat st;
    if (lstat(entry.path().c_str(), &st) != 0) continue;  // the index is at work
    bytes += std::max<uint64_t>(512 * static_cast<uint64_t>(st.st_blocks),
                                static_cast<uint64_t>(st.st_size));
  }
  return bytes;
}

// A process that holds the lock on a file until it is killed.
class Locker {
 public:
  explicit Locker(const std::string& path, int hold_ms = 60'000) {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    child_ = fork();
    if (child_ == 0) {
      const int fd = open(path.c_str(), O_RDWR);
      if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) _exit(1);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      // The lock must go away while the parent is waiting for it.
      usleep(static_cast<useconds_t>(hold_ms) * 1000);
      _exit(0);
    }
    close(ready[1]);
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
  }
  ~Locker() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_;
};

absl::Status Move(World& world, NvmeDevice& device, IoOperation::Kind kind, BlockNumber block,
                  std::vector<std::byte>& bytes) {
  absl::Status status = absl::UnknownError("not done");
  device.io().Submit({.kind = kind,
                      .offset = DeviceOffset(block.value() * kBlockBytes),
                      .data = bytes.data(),
                      .bytes = bytes.size(),
                      .done = [&](absl::Status s) { status = std::move(s); }});
  world.executor.RunAll();
  return status;
}

}  // namespace

TEST_CASE("a directory that does not exist is formatted, and opened again as the same device") {
  World world;
  NvmeDevice::OpenResult first = world.Open();
  REQUIRE(first.device != nullptr);
  CHECK(first.formatted);
  const Uuid uuid = first.device->uuid();
  CHECK_FALSE(uuid.is_zero());
  first.device.reset();
  const NvmeDevice::OpenResult second = world.Open();
  REQUIRE(second.device != nullptr);
  CHECK_FALSE(second.formatted);
  CHECK(second.device->uuid() == uuid);
  CHECK(second.device->dir() == world.options.dir);
  struct stat st;
  for (const char* name : {"", "index"}) {
    REQUIRE(stat(world.File(name).c_str(), &st) == 0);
    CHECK((st.st_mode & 0777) == 0700);
  }
  REQUIRE(stat(world.File("data.000").c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
}

TEST_CASE("blocks count through the data files, runs stop at them and labels are reserved") {
  World world;
  const auto device = world.MustOpen();
  CHECK(device->barrier_blocks() == BlockCount(2560));       // 10 MiB
  CHECK(device->capacity_blocks() == BlockCount(32 * 256));  // 32 MiB of the 64
  CHECK(device->io().size_bytes() == 32 * kMiB);
  const ExtentList reserved = device->ReservedExtents();
  REQUIRE(reserved.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(reserved[i] == Extent{BlockNumber(2560 * i), BlockCount(1)});
  }
}

TEST_CASE("what is written to a block is read back from it, in every file and after reopening") {
  World world;
  auto device = world.MustOpen();
  for (const uint64_t block : {1, 2559, 2561, 5121, 32 * 256 - 1}) {
    std::vector<std::byte> bytes(kBlockBytes, static_cast<std::byte>(block % 251));
    REQUIRE(Move(world, *device, IoOperation::Kind::kWrite, BlockNumber(block), bytes).ok());
  }
  REQUIRE(device->io().Sync().ok());
  device.reset();
  device = world.MustOpen();
  for (const uint64_t block : {1, 2559, 2561, 5121, 32 * 256 - 1}) {
    std::vector<std::byte> bytes(kBlockBytes);
    REQUIRE(Move(world, *device, IoOperation::Kind::kRead, BlockNumber(block), bytes).ok());
    CHECK(bytes == std::vector<std::byte>(kBlockBytes, static_cast<std::byte>(block % 251)));
  }
}

TEST_CASE("the whole directory stays below its capacity while the index is used") {
  World world;
  const auto device = world.MustOpen();
  CHECK(device->capacity_bytes() == 64 * kMiB);
  CHECK_FALSE(device->index_over_budget());
  // Until the index refuses.
  const std::string value(256 * kKiB, 'v');
  int puts = 0;
  for (int refused = 0; puts < 1000 && refused < 60'000 && !device->index_over_budget();) {
    absl::Status put = device->index().PutMeta("name" + std::to_string(puts), value);
    REQUIRE((put.ok() || absl::IsUnavailable(put)));
    put.ok() ? ++puts : ++refused;
    if (!put.ok()) usleep(1000);  // for RocksDB to flush, on a machine that may be busy
    REQUIRE(DirectoryBytes(world.options.dir) <= 64 * kMiB);
  }
  CHECK(device->index_over_budget());
  CHECK(puts > 20);
  CHECK(DirectoryBytes(world.options.dir) <= 64 * kMiB);
  CHECK(device->used_directory_bytes() > 32 * kMiB);
}

TEST_CASE("a device that another process holds is in use, whichever of its files is locked") {
  World world;
  world.MustOpen();
  for (const char* name : {"superblock", "data.002"}) {
    const Locker locker(world.File(name));
    world.MustFail(OpenFailure::kInUse, name);
  }
  world.MustOpen();
}

TEST_CASE("a lock that goes away soon, as a killed daemon's does, is waited for") {
  World world;
  world.MustOpen();
  for (const char* name : {"superblock", "data.001"}) {
    const Locker locker(world.File(name), /*hold_ms=*/100);
    world.MustOpen();
  }
}

TEST_CASE("a device is opened once at a time") {
  World world;
  const auto device = world.MustOpen();
  world.MustFail(OpenFailure::kInUse, "superblock");
}

TEST_CASE("the device of another store, or of another MAC key, is refused") {
  World world;
  world.MustOpen();
  const Uuid store = world.store;
  world.store = *Uuid::FromBytes("other");
  world.MustFail(OpenFailure::kBroken, store.ToHex());
  world.store = store;
  world.mac_key[0] = std::byte{1};
  world.MustFail(OpenFailure::kBroken, "MAC key");
}

TEST_CASE("a device that lost or broke a file is broken, and the error names the file") {
  World world;
  world.MustOpen();
  SECTION("data file missing") {
    fs::remove(world.File("data.001"));
    world.MustFail(OpenFailure::kBroken, "data.001");
  }
  SECTION("data file truncated") {
    fs::resize_file(world.File("data.003"), kMiB);
    world.MustFail(OpenFailure::kBroken, "data.003");
  }
  SECTION("label damaged") {
    FlipByte(world.File("data.000"), 20);
    world.MustFail(OpenFailure::kBroken, "data.000");
  }
  SECTION("superblock missing") {
    fs::remove(world.File("superblock"));
    world.MustFail(OpenFailure::kBroken, "superblock");
  }
  SECTION("superblock truncated") {
    fs::resize_file(world.File("superblock"), 100);
    world.MustFail(OpenFailure::kBroken, "superblock");
  }
  SECTION("superblock damaged") {
    for (const int at : {0, 8, 16, 40, 48, 70, 3000, 4095}) {
      FlipByte(world.File("superblock"), at);
      world.MustFail(OpenFailure::kBroken, "superblock");
      FlipByte(world.File("superblock"), at);
    }
    world.MustOpen();
  }
  SECTION("index missing") {
    fs::remove_all(world.File("index"));
    world.MustFail(OpenFailure::kBroken, "index");
  }
  SECTION("index damaged") {
    FlipByte(world.File("index/CURRENT"), 3);
    world.MustFail(OpenFailure::kBroken, "index");
  }
}

TEST_CASE("files that were mixed up are a mistake of the operator") {
  World world;
  world.MustOpen();
  SECTION("two data files exchanged") {
    fs::rename(world.File("data.000"), world.File("data.tmp"));
    fs::rename(world.File("data.001"), world.File("data.000"));
    fs::rename(world.File("data.tmp"), world.File("data.001"));
    world.MustFail(OpenFailure::kMisconfigured, "data.000");
  }
  SECTION("the index of another device") {
    const std::string own = world.options.dir;
    world.options.dir = world.scratch / "other";
    world.MustOpen();
    fs::remove_all(own + "/index");
    fs::rename(world.File("index"), own + "/index");
    world.options.dir = own;
    world.MustFail(OpenFailure::kMisconfigured, "index");
  }
  SECTION("a data file that is a link") {
    fs::rename(world.File("data.000"), world.scratch / "elsewhere");
    fs::create_symlink(world.scratch / "elsewhere", world.File("data.000"));
    world.MustFail(OpenFailure::kMisconfigured, "data.000");
  }
}

TEST_CASE("only an empty directory is formatted, and nothing in another one is touched") {
  World world;
  fs::create_directory(world.options.dir);
  fs::create_directory(world.File("lost+found"));
  std::ofstream(world.File("photos.tar")) << "precious";
  world.MustFail(OpenFailure::kMisconfigured, "photos.tar");
  CHECK(fs::file_size(world.File("photos.tar")) == 8);
  CHECK_FALSE(fs::exists(world.File("superblock")));
  fs::remove(world.File("photos.tar"));
  world.MustOpen();
}

TEST_CASE("files of a device that are none, or empty") {
  World world;
  SECTION("a known device whose superblock is empty") {
    world.MustOpen();
    fs::resize_file(world.File("superblock"), 0);
    world.options.may_format = false;
    world.MustFail(OpenFailure::kBroken, "the superblock is empty");
    CHECK(fs::exists(world.File("data.000")));
  }
  SECTION("an empty superblock beside what is not ours") {
    fs::create_directory(world.options.dir);
    std::ofstream(world.File("superblock")).flush();
    std::ofstream(world.File("photos.tar")) << "x";
    world.MustFail(OpenFailure::kMisconfigured, "photos.tar");
    CHECK(fs::exists(world.File("photos.tar")));
  }
  SECTION("a data file that is none") {
    world.MustOpen();
    fs::remove(world.File("data.001"));
    REQUIRE(mkfifo(world.File("data.001").c_str(), 0600) == 0);
    world.MustFail(OpenFailure::kMisconfigured, "not a regular file");
  }
}

TEST_CASE("places that cannot hold a device") {
  World world;
  SECTION("the parent does not exist: not mounted") {
    world.options.dir = world.scratch / "absent/device";
    world.MustFail(OpenFailure::kBroken, "absent/device");
  }
  SECTION("a known device whose directory is empty: not mounted") {
    fs::create_directory(world.options.dir);
    world.options.may_format = false;
    world.MustFail(OpenFailure::kBroken, "mounted");
    CHECK(fs::is_empty(world.options.dir));
  }
  SECTION("a file") {
    std::ofstream(world.options.dir) << "x";
    world.MustFail(OpenFailure::kMisconfigured, "device");
  }
  SECTION("a symbolic link") {
    fs::create_directory_symlink(world.scratch.path(), world.options.dir);
    world.MustFail(OpenFailure::kMisconfigured, "device");
  }
  SECTION("a directory that others may write to: nothing is put into it") {
    fs::create_directory(world.options.dir);
    for (const mode_t mode : {0777u, 0770u, 0702u, 01777u}) {
      REQUIRE(chmod(world.options.dir.c_str(), mode) == 0);
      world.MustFail(OpenFailure::kMisconfigured, "others may write to it");
      CHECK(fs::is_empty(world.options.dir));
    }
    REQUIRE(chmod(world.options.dir.c_str(), 0755) == 0);
    world.MustOpen();  // only inspected: it is closed from now on
    struct stat st;
    REQUIRE(stat(world.options.dir.c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == 0700);
  }
  SECTION("a device whose directory others may write to by now") {
    world.MustOpen();
    REQUIRE(chmod(world.options.dir.c_str(), 0777) == 0);
    world.MustFail(OpenFailure::kMisconfigured, "mode 0777");
  }
  SECTION("another user's directory") {
    if (geteuid() != 0) {
      WARN("skipped: needs root");
      return;
    }
    fs::create_directory(world.options.dir);
    REQUIRE(chown(world.options.dir.c_str(), 64123, 64123) == 0);
    world.MustFail(OpenFailure::kMisconfigured, "belongs to user 64123");
    CHECK(fs::is_empty(world.options.dir));
  }
  SECTION("more than the file system has: nothing stays behind") {
    world.options.capacity_bytes = 900 * kTiB;
    world.options.file_bytes = kTiB;
    world.MustFail(OpenFailure::kMisconfigured, "capacity_bytes");
    CHECK_FALSE(fs::exists(world.File("data.000")));
    world.options.capacity_bytes = 64 * kMiB;
    world.MustOpen();
  }
}

TEST_CASE("a directory that may not be written is broken, not misconfigured") {
  World world;
  world.MustOpen();
  REQUIRE(chmod(world.scratch.path().c_str(), 0755) == 0);
  REQUIRE(chmod(world.options.dir.c_str(), 0555) == 0);
  REQUIRE(chmod(world.File("superblock").c_str(), 0444) == 0);
  // Root may write anyway, so another user tries, in a process of its own.
  if (geteuid() == 0) REQUIRE(chown(world.options.dir.c_str(), 65534, 65534) == 0);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(2);
    const NvmeDevice::OpenResult result = world.Open();
    const bool as_expected = result.device == nullptr &&
                             result.error.failure == OpenFailure::kBroken &&
                             absl::IsPermissionDenied(result.error.status);
    _exit(as_expected ? 0 : 1);
  }
  int how = 0;
  REQUIRE(waitpid(child, &how, 0) == child);
  REQUIRE(WIFEXITED(how));
  if (WEXITSTATUS(how) == 2) {
    WARN("skipped: this root may not become another user");
  } else {
    CHECK(WEXITSTATUS(how) == 0);
  }
}

TEST_CASE("a format that was cut short is started again") {
  World world;
  fs::create_directory(world.options.dir);
  std::ofstream(world.File("superblock"));
  std::ofstream(world.File("data.000")) << "half";
  fs::create_directory(world.File("index"));
  std::ofstream(world.File("index/LOG")) << "half";
  const NvmeDevice::OpenResult result = world.Open();
  REQUIRE(result.device != nullptr);
  CHECK(result.formatted);
}

TEST_CASE("a device grows with its capacity, keeps what it held, and never shrinks") {
  World world;
  auto device = world.MustOpen();
  const Uuid uuid = device->uuid();
  std::vector<std::byte> bytes(kBlockBytes, std::byte{7});
  const BlockNumber last(32 * 256 - 1);
  REQUIRE(Move(world, *device, IoOperation::Kind::kWrite, last, bytes).ok());
  device.reset();

  world.options.capacity_bytes = 100 * kMiB;
  device = world.MustOpen();
  CHECK(device->uuid() == uuid);
  CHECK(device->capacity_blocks() == BlockCount(68 * 256));
  CHECK(device->ReservedExtents().size() == 7);
  std::vector<std::byte> read(kBlockBytes);
  REQUIRE(Move(world, *device, IoOperation::Kind::kRead, last, read).ok());
  CHECK(read == bytes);
  CHECK(Move(world, *device, IoOperation::Kind::kWrite, BlockNumber(68 * 256 - 1), bytes).ok());
  device.reset();

  world.options.capacity_bytes = 90 * kMiB;
  device = world.MustOpen();
  CHECK(device->capacity_bytes() == 100 * kMiB);
  CHECK(device->capacity_blocks() == BlockCount(68 * 256));
}

TEST_CASE("growing that was cut short is undone, or done again") {
  World world;
  world.MustOpen();
  const uint64_t before = DirectoryBytes(world.options.dir);
  fs::resize_file(world.File("data.003"), 8 * kMiB);  // was 2
  std::ofstream(world.File("data.004")) << "half";
  std::ofstream(world.File("superblock.new")) << "half";
  const bool grow = GENERATE(false, true);
  if (grow) world.options.capacity_bytes = 80 * kMiB;
  const auto device = world.MustOpen();
  CHECK(device->capacity_blocks() == BlockCount((grow ? 48 : 32) * 256));
  CHECK(fs::exists(world.File("data.004")) == grow);
  if (!grow) CHECK(DirectoryBytes(world.options.dir) < before + 4 * kMiB);
}

TEST_CASE("options over their limits are refused by name") {
  World world;
  world.options.capacity_bytes = 63 * kMiB;
  world.MustFail(OpenFailure::kMisconfigured, "capacity_bytes");
  world.options.capacity_bytes = 64 * kMiB;
  world.options.file_bytes = 10 * kMiB + 1;
  world.MustFail(OpenFailure::kMisconfigured, "file_bytes");
  world.options.file_bytes = 10 * kMiB;
  world.options.depth = 0;
  world.MustFail(OpenFailure::kMisconfigured, "depth");
  world.options.depth = 1;
  world.options.file_bytes = kMiB;
  world.options.capacity_bytes = 1002 * kMiB;
  world.MustFail(OpenFailure::kMisconfigured, "more than 1000 data files");
  world.options.dir.clear();
  world.MustFail(OpenFailure::kMisconfigured, "dir of a device is empty");
}

TEST_CASE("a growth to what the device or its file system cannot have leaves it as it is") {
  World world;
  world.options.file_bytes = kMiB;
  world.MustOpen();
  world.options.file_bytes = kTiB;  // a device keeps the size of its files
  world.options.capacity_bytes = 1002 * kMiB;
  world.MustFail(OpenFailure::kMisconfigured, "more than 1000 data files");
  World wide;
  wide.options.file_bytes = kTiB;
  wide.MustOpen();
  wide.options.capacity_bytes = 900 * kTiB;
  wide.MustFail(OpenFailure::kMisconfigured, "the file system has");
  for (World* each : {&world, &wide}) {
    each->options.capacity_bytes = 64 * kMiB;
    CHECK(each->MustOpen()->capacity_bytes() == 64 * kMiB);
  }
}

}  // namespace kvkeep
