#include "tests/tiers/fsck/store_on_disk.h"

#include <absl/strings/str_cat.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tiers/index/rocksdb_index.h"
#include "tiers/nvme/device_names.h"

namespace kvkeep {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kArenaBlocks = 4096;  // 16 MiB

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

StoreOnDisk::StoreOnDisk() {
  identity.store_uuid = *Uuid::FromBytes("store");
  identity.mac_key.fill(std::byte{'k'});
}

StoreOnDisk::~StoreOnDisk() {
  if (device_ != nullptr) Stop();
}

bool StoreOnDisk::Start() {
  REQUIRE(device_ == nullptr);
  NvmeDevice::OpenResult opened =
      OpenNvmeDevice(options, identity.store_uuid, identity.mac_key, &engine_, &random_);
  error = opened.error.status;
  device_opened = opened.device != nullptr;
  if (!device_opened) return false;
  device_ = std::move(opened.device);
  arena_ = std::make_unique<MemoryArena>(BlockCount(kArenaBlocks), BlockCount(kArenaBlocks));
  StoreOptions store_options;
  store_options.dirty_budget_bytes = arena_->capacity_bytes();
  store_options.max_reserved_bytes = arena_->capacity_bytes();
  store_options.max_device_writes_in_flight_bytes = 4 * kMiB;
  store_options.max_chunks = 10'000;
  absl::StatusOr<std::unique_ptr<Store>> store =
      Store::Create(store_options, {.clock = &clock_,
                                    .random = &random_,
                                    .arena = arena_.get(),
                                    .devices = {{.device = device_.get(),
                                                 .index_executor = &executor_,
                                                 .sync_executor = &executor_}},
                                    .copy_executor = &executor_,
                                    .mac_key = identity.mac_key,
                                    .keys = keys.get(),
                                    .boot_id = boot_id});
  error = store.status();
  if (!store.ok()) {
    device_.reset();
    return false;
  }
  store_ = *std::move(store);
  session_ = store_->OpenSession({.client_name = "test"}).value();
  ns = store_->OpenNamespace(session_, {.model = "test", .tokens_per_chunk = 16, .parts = 1})
           .value();
  RunAll();
  return true;
}

void StoreOnDisk::Stop() {
  executor_.Drop();
  store_.reset();
  device_.reset();
  arena_.reset();
}

void StoreOnDisk::Settle() {
  for (int i = 0; i < 1000; ++i) {
    RunAll();
    clock_.Advance(std::chrono::milliseconds(100));
    store_->Tick();
    RunAll();
    if (store_->snapshot().dirty_chunks == 0 && i >= 20) return;
  }
  FAIL("something never ends");
}

void StoreOnDisk::Put(uint64_t name, uint32_t payload_bytes, uint32_t tail_bytes) {
  absl::StatusOr<ReserveResult> reserved = store_->Reserve(
      session_, {.ns = ns,
                 .key = MakeKey(name),
                 .shape = {.payload_bytes = payload_bytes, .tail_bytes = tail_bytes}});
  REQUIRE(reserved.ok());
  INFO(reserved->message);
  REQUIRE(reserved->outcome == ReserveResult::Outcome::kReserved);
  reserved->reservation.Append(MakePayload(name, 1, payload_bytes));
  REQUIRE(reserved->reservation.Seal(std::vector<std::byte>(tail_bytes, std::byte{'t'})).ok());
  reserved->reservation = {};
  sizes[name] = {payload_bytes, tail_bytes};
  Settle();
}

void StoreOnDisk::Delete(uint64_t name) {
  const std::vector<ChunkKey> keys = {MakeKey(name)};
  const std::vector<PartId> parts = {PartId(0)};
  REQUIRE(store_->Delete(session_, {ns, keys, parts}).value() == 1);
  Settle();
}

void StoreOnDisk::Clear() {
  store_->Clear(std::nullopt);
  Settle();
}

std::string StoreOnDisk::Get(uint64_t name) {
  absl::StatusOr<ReadResult> read = store_->Read(session_, Id(name), LeaseId(0), false);
  if (!read.ok()) return read.status().ToString();
  if (read->outcome == ReadOutcome::kMiss) return "miss";
  if (read->outcome == ReadOutcome::kBusy) return "busy";
  ChunkReader& reader = read->reader;
  absl::Status ready = absl::UnknownError("stuck");
  reader.WhenReady(0, reader.shape().pieces(), [&](absl::Status status) { ready = status; });
  RunAll();
  if (absl::IsDataLoss(ready)) return "miss";  // noticed on the way: no bytes were given
  if (!ready.ok()) return ready.ToString();
  std::vector<std::byte> bytes;
  while (bytes.size() < reader.shape().payload_bytes) {
    const auto run = reader.Payload(bytes.size(), reader.shape().payload_bytes - bytes.size());
    bytes.insert(bytes.end(), run.begin(), run.end());
  }
  const auto size = sizes.find(name);
  const bool right = size != sizes.end() && bytes == MakePayload(name, 1, size->second.first) &&
                     reader.Metadata() == std::string(size->second.second, 't');
  return right ? "hit" : "wrong";
}

FsckOptions StoreOnDisk::fsck_options() const {
  return {.dir = options.dir,
          .identity = identity,
          .boot_id = boot_id,
          .keys = keys.get(),
          .threads = 2};
}

FsckReport StoreOnDisk::Check(bool headers_only) {
  FsckOptions how = fsck_options();
  how.headers_only = headers_only;
  const absl::StatusOr<FsckReport> report = Fsck(how);
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  return *report;
}

RebuildReport StoreOnDisk::Rebuild() {
  const absl::StatusOr<RebuildReport> report = RebuildIndex(fsck_options());
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  return *report;
}

std::map<ChunkId, IndexRecord> StoreOnDisk::Records() {
  REQUIRE(device_ == nullptr);
  const std::string block = ReadAll(File(kSuperblockName));
  const absl::StatusOr<std::unique_ptr<IndexInspector>> index =
      InspectRocksDbIndex(File(kIndexName), *Uuid::FromBytes(block.substr(32, Uuid::kSize)));
  std::map<ChunkId, IndexRecord> records;
  if (!index.ok()) return records;
  (*index)
      ->Visit([&](absl::string_view key, absl::string_view value) {
        const absl::StatusOr<IndexRecord> record = DecodeRecord(key, value);
        if (record.ok()) records[record->id] = *record;
        return true;
      })
      .IgnoreError();
  return records;
}

void StoreOnDisk::CommitRecords(const IndexBatch& batch) {
  REQUIRE(device_ == nullptr);
  NvmeDevice::OpenResult opened =
      OpenNvmeDevice(options, identity.store_uuid, identity.mac_key, &engine_, &random_);
  REQUIRE(opened.device != nullptr);
  REQUIRE(opened.device->index().Commit(batch).ok());
}

ImageHeader StoreOnDisk::MakeHeader(uint64_t name, const std::vector<std::byte>& payload,
                                    const ExtentList& extents, uint64_t generation) const {
  const std::string block = ReadAll(File(kSuperblockName));
  ImageHeader header;
  header.identity.id = Id(name);
  header.identity.shape = {.payload_bytes = static_cast<uint32_t>(payload.size())};
  header.identity.tail_checksum = Xxh3({});
  for (size_t i = 0; i < PieceCount(payload.size()); ++i) {
    header.identity.piece_checksums.push_back(
        Xxh3(std::span(payload).subspan(i * kPieceBytes, PieceSize(payload.size(), i))));
  }
  header.placement = {.tier = Tier::kG3,
                      .place = *Uuid::FromBytes(block.substr(32, Uuid::kSize)),
                      .incarnation = Incarnation(1),
                      .generation = Generation(generation),
                      .extents = extents};
  return header;
}

void StoreOnDisk::WriteImage(const ImageHeader& header, const std::vector<std::byte>& payload) {
  REQUIRE(header.placement.extents.size() == 1);
  std::vector<std::byte> image(kHeaderBytes);
  EncodeHeader(header, identity.mac_key, HeaderPage(image.data(), kHeaderBytes));
  image.insert(image.end(), payload.begin(), payload.end());
  WriteBlocks(header.placement.extents[0].first, image);
}

std::vector<std::byte> StoreOnDisk::ReadBlocks(BlockNumber first, size_t bytes) const {
  const uint64_t at = first.value() * kBlockBytes;
  std::ifstream file(File(DataFileName(at / options.file_bytes)), std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at % options.file_bytes));
  std::vector<std::byte> read(bytes);
  file.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(bytes));
  REQUIRE(file.good());
  return read;
}

void StoreOnDisk::WriteBlocks(BlockNumber first, std::span<const std::byte> bytes) const {
  const uint64_t at = first.value() * kBlockBytes;
  std::fstream file(File(DataFileName(at / options.file_bytes)),
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at % options.file_bytes));
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
}

void StoreOnDisk::FlipBit(const std::string& name, uint64_t byte, int bit) const {
  std::fstream file(File(name), std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(byte));
  const char flipped = static_cast<char>(file.get() ^ (1 << bit));
  file.seekp(static_cast<std::streamoff>(byte));
  file.put(flipped);
  REQUIRE(file.good());
}

void StoreOnDisk::FlipInBlock(BlockNumber block, uint64_t byte_in_block) const {
  const uint64_t at = block.value() * kBlockBytes + byte_in_block;
  FlipBit(DataFileName(at / options.file_bytes), at % options.file_bytes);
}

std::map<std::string, std::string> StoreOnDisk::Contents() const {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(options.dir)) {
    struct stat st;
    REQUIRE(lstat(entry.path().c_str(), &st) == 0);
    const std::string bytes = entry.is_regular_file() ? ReadAll(entry.path()) : "";
    contents[entry.path().string()] =
        absl::StrCat(st.st_mode, " ", st.st_size, " ", st.st_mtim.tv_sec, ".", st.st_mtim.tv_nsec,
                     " ", st.st_ino, " ", Xxh3(std::as_bytes(std::span(bytes))));
  }
  return contents;
}

size_t CountOf(const std::vector<FsckFinding>& findings, FsckProblem problem, bool notice) {
  return static_cast<size_t>(
      std::count_if(findings.begin(), findings.end(), [&](const FsckFinding& finding) {
        return finding.problem == problem && finding.notice == notice;
      }));
}

std::string Text(const std::vector<FsckFinding>& findings) {
  std::string text;
  for (const FsckFinding& finding : findings) absl::StrAppend(&text, finding.ToString(), "\n");
  return text;
}

}  // namespace kvkeep
