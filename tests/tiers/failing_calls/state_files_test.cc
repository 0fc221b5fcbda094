// The small files that a store keeps beside its devices, whichever call fails.
#include <absl/strings/match.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/fakes/failing_calls.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tests/tiers/failing_calls/descriptors.h"
#include "tiers/base/own_directory.h"
#include "tiers/base/private_file.h"
#include "tiers/base/unique_fd.h"
#include "tiers/nvme/key_ring_file.h"
#include "tiers/nvme/nvme_device.h"

namespace kvkeep {
namespace {

Secret MasterKey() {
  SeededRandom random(3);
  Secret secret;
  random.Fill(secret.writable());
  return secret;
}

}  // namespace

TEST_CASE("a state file that could not be made is made by the next start, and only once") {
  FailEachCall({EIO, EEXIST, EINTR}, [](const CallFault& fault) {
    const ScratchDir scratch;
    SeededRandom random(1);
    const size_t before = OpenDescriptors();
    absl::StatusOr<StoreIdentity> first;
    std::string failed;
    {
      const FailingCalls calls(fault);
      first = LoadOrCreateStoreIdentity(scratch / "state", &random);
      failed = calls.failed();
    }
    INFO(failed << ": " << first.status().ToString());
    CHECK(OpenDescriptors() == before);
    if (failed.empty()) CHECK(first.ok());
    const auto next = LoadOrCreateStoreIdentity(scratch / "state", &random);
    REQUIRE(next.ok());
    // A returned identity stays the same.
    if (first.ok()) CHECK(next->store_uuid == first->store_uuid);
    return failed;
  });
}

TEST_CASE("a state file that cannot be read is no reason to make another") {
  const ScratchDir scratch;
  SeededRandom random(1);
  const StoreIdentity made = LoadOrCreateStoreIdentity(scratch / "state", &random).value();
  FailEachCall({EIO, EACCES}, [&](const CallFault& fault) {
    absl::StatusOr<StoreIdentity> again;
    std::string failed;
    {
      const FailingCalls calls(fault);
      again = LoadOrCreateStoreIdentity(scratch / "state", &random);
      failed = calls.failed();
    }
    INFO(failed << ": " << again.status().ToString());
    CHECK(again.ok() == failed.empty());
    CHECK(LoadStoreIdentity(scratch / "state")->store_uuid == made.store_uuid);
    return failed;
  });
}

TEST_CASE("a boot id that cannot be read is an error") {
  FailEachCall({EIO, kMovesNothing}, [](const CallFault& fault) {
    const FailingCalls calls(fault);
    const auto boot_id = ReadBootId();
    // The read after the last byte moves nothing anyway.
    if (fault.error != kMovesNothing) CHECK(boot_id.ok() == calls.failed().empty());
    return calls.failed();
  });
}

TEST_CASE("a key ring that could not be replaced is the old one or the new one, whole") {
  const auto attempt = [](const CallFault& fault) {
    const ScratchDir scratch;
    SeededRandom random(2);
    const std::string path = scratch / "keyring";
    const size_t before = OpenDescriptors();
    size_t entries = 0;
    {
      auto file = KeyRingFile::Open(path);
      REQUIRE(file.ok());
      REQUIRE((*file)->UnwrapWithKeysFor({"a"}, MasterKey(), &random).ok());
    }
    std::string failed;
    absl::Status status;
    {
      const FailingCalls calls(fault);
      auto file = KeyRingFile::Open(path);
      status = file.status();
      if (file.ok()) {
        status = (*file)->UnwrapWithKeysFor({"a", "b"}, MasterKey(), &random).status();
        entries = (*file)->entries().size();
      }
      failed = calls.failed();
    }
    INFO(failed << ": " << status.ToString());
    // Files left by a change that was cut short may be absent.
    CHECK(status.ok() == (failed.empty() || failed == "unlink"));
    CHECK(OpenDescriptors() == before);
    const auto left = KeyRingFile::Read(path);
    REQUIRE(left.ok());
    CHECK((left->size() == 1 || left->size() == 2));
    // A later start finds the entries that the daemon works with.
    if (status.ok()) CHECK(entries == left->size());
    auto file = KeyRingFile::Open(path);
    REQUIRE(file.ok());
    CHECK((*file)->UnwrapWithKeysFor({"a", "b"}, MasterKey(), &random).ok());
    return failed;
  };
  CHECK(FailEachCall({EIO}, attempt) > 10);
}

// The process that replaced it may have been killed before it was durable, and a power cut would
// bring back the key ring that only a previous master key opens.
TEST_CASE("a key ring that is found as it should be is flushed, and its directory, or not taken") {
  const ScratchDir scratch;
  SeededRandom random(2);
  const std::string path = scratch / "keyring";
  const auto start = [&] {
    auto file = KeyRingFile::Open(path);
    if (!file.ok()) return file.status();
    return (*file)->UnwrapWithKeysFor({"a"}, MasterKey(), &random).status();
  };
  REQUIRE(start().ok());
  const auto made = KeyRingFile::Read(path);
  const uint64_t failed = FailEachCall({EIO}, [&](const CallFault& fault) {
    const FailingCalls calls(fault);
    const absl::Status status = start();
    INFO(calls.failed() << ": " << status.ToString());
    CHECK(status.ok() == calls.failed().empty());
    return calls.failed();
  });
  CHECK(failed > 5);
  const std::vector<std::string> flushed = {path, scratch.path()};
  for (uint64_t number = 0; number <= flushed.size(); ++number) {
    const FailingCalls calls({.number = number, .only = "fsync", .error = EIO});
    const absl::Status status = start();
    INFO(number << ": " << status.ToString());
    CHECK(status.ok() == (number == flushed.size()));
    if (number == flushed.size()) continue;
    CHECK(absl::StartsWith(status.message(), flushed[number] + ": fsync"));
  }
  CHECK(KeyRingFile::Read(path).value() == made.value());
}

TEST_CASE("what a cut change of the key ring left stays until it is zeros, whichever call fails") {
  const ScratchDir scratch;
  const std::string path = scratch / "keyring", unfinished = path + ".new";
  FailEachCall({EIO}, [&](const CallFault& fault) {
    std::ofstream(unfinished) << "the keys of before";
    REQUIRE(chmod(unfinished.c_str(), 0600) == 0);
    std::string failed;
    {
      const FailingCalls calls(fault);
      const absl::Status status = KeyRingFile::Open(path).status();
      failed = calls.failed();
      INFO(failed << ": " << status.ToString());
      CHECK(status.ok() == failed.empty());
    }
    if (failed == "pwrite" || failed == "fsync" || failed == "unlink") {
      CHECK(access(unfinished.c_str(), F_OK) == 0);
    }
    CHECK(KeyRingFile::Open(path).ok());
    CHECK(access(unfinished.c_str(), F_OK) != 0);
    return failed;
  });
}

TEST_CASE("a change of the key ring takes away what one before it left, or is none") {
  SeededRandom random(2);
  std::vector<KeyRing::Entry> entries;
  for (const char* tenant : {"a", "b"}) {
    entries.push_back(KeyRing::MakeEntry(tenant, MasterKey(), &random));
  }
  FailEachCall({EIO}, [&](const CallFault& fault) {
    const ScratchDir scratch;
    const std::string path = scratch / "keyring", unfinished = path + ".new";
    auto file = KeyRingFile::Open(path);
    REQUIRE(file.ok());
    REQUIRE((*file)->Replace({entries[0]}).ok());
    {
      const FailingCalls calls({.number = 0, .only = "rename", .error = EIO});
      CHECK_FALSE((*file)->Replace(entries).ok());
    }
    REQUIRE(access(unfinished.c_str(), F_OK) == 0);
    std::string failed;
    {
      const FailingCalls calls(fault);
      const absl::Status status = (*file)->Replace(entries);
      failed = calls.failed();
      INFO(failed << ": " << status.ToString());
      CHECK(status.ok() == failed.empty());
    }
    const size_t left = KeyRingFile::Read(path)->size();
    CHECK((left == 2 || (left == 1 && !failed.empty())));
    CHECK((*file)->Replace(entries).ok());
    CHECK(access(unfinished.c_str(), F_OK) != 0);
    CHECK(KeyRingFile::Read(path)->size() == 2);
    return failed;
  });
}

TEST_CASE("a secret that cannot be read is refused, and so is a directory that cannot be judged") {
  const ScratchDir scratch;
  const std::string path = scratch / "master";
  std::ofstream(path) << "0123456789abcdef0123456789abcdef";
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  const UniqueFd directory(open(scratch.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  FailEachCall({EIO, EACCES}, [&](const CallFault& fault) {
    const FailingCalls calls(fault);
    const bool read = ReadMasterKey(path).ok();
    CHECK(read == calls.failed().empty());
    return calls.failed();
  });
  CHECK(ReadPrivateFile(path, 32, Secrecy::kSecret).ok());
  CHECK_FALSE(ReadPrivateFile(path, 31, Secrecy::kSecret).ok());
  CHECK_FALSE(ReadPrivateFile(scratch.path(), 32, Secrecy::kPublic).ok());  // no file
  REQUIRE(chmod(scratch.path().c_str(), 0750) == 0);
  for (const char* call : {"fstat", "fchmod"}) {
    const FailingCalls calls({.number = 0, .only = call, .error = EIO});
    const absl::Status kept_out = KeepOthersOut(directory.get(), scratch.path());
    CHECK_FALSE(kept_out.ok());
    CHECK(IsOneLine(kept_out));
  }
  const FailingCalls calls({.number = 0, .only = "fstat", .error = EIO});
  CHECK_FALSE(CheckOwnDirectory(directory.get(), scratch.path()).ok());
}

TEST_CASE("a secret of another user is refused") {
  const ScratchDir scratch;
  const std::string path = scratch / "master";
  std::ofstream(path) << "0123456789abcdef0123456789abcdef";
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  if (chown(path.c_str(), 64123, 64123) != 0) {
    WARN("skipped: needs root");
    return;
  }
  const absl::Status status = ReadPrivateFile(path, 32, Secrecy::kSecret).status();
  INFO(status.ToString());
  CHECK(status.message().find("belongs to uid 64123") != absl::string_view::npos);
}

}  // namespace kvkeep
