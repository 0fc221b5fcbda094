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
};

}  // namespace kvkeep::client
