// Read: what a message to a fake must begin with; a client that sends less fails the test.
#pragma once

#include "proto/local/message.h"
#include "tiers/base/check.h"

namespace kvkeep::fakes {

template <typename T>
T Read(local::BodyReader& reader) {
  T value;
  KVKEEP_CHECK(reader.Read(&value));
  return value;
}

}  // namespace kvkeep::fakes
