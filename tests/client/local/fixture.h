// The fake daemon and a transport on it.
#pragma once

#include "tests/client/local/blocking.h"
#include "tests/fakes/fake_local_daemon.h"

namespace kvkeep::client {

struct FakeDaemonHolder {
  fakes::FakeLocalDaemon daemon;  // a base, and the first: it goes last
};

struct LocalFixture : FakeDaemonHolder, Blocking {
  explicit LocalFixture(Deadline deadline = Deadline(10'000),
                        DaemonProcess::Watch watch = DaemonProcess::OpenPidfd)
      : Blocking(daemon.socket(), deadline, std::move(watch)) {}
  using Edit = std::function<void(fakes::FakeLocalDaemon::Script*)>;
  explicit LocalFixture(const Edit& edit) : Blocking((edit(&daemon.script), daemon.socket())) {}
};

// A daemon that takes no absolute deadlines.
inline void OfVersion7(fakes::FakeLocalDaemon::Script* script) { script->version = 7; }

// Memory of the caller that is registered with the daemon.
struct Registered {
  Registered(Blocking& client, size_t bytes, const RegisterOptions& options = {}) {
    const UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
    REQUIRE(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    void* const at =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(at != MAP_FAILED);
    memory = {static_cast<std::byte*>(at), bytes};
    auto registered = client.transport->RegisterMemory(fd.get(), memory, options);
    REQUIRE(registered.ok());
    handle = *std::move(registered);
  }
  ~Registered() { munmap(memory.data(), memory.size()); }

  std::span<std::byte> memory;
  RegisteredMemory handle;
};

}  // namespace kvkeep::client
