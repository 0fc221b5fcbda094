// ReadWhole: reads a message whose body is one struct and nothing else.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include "proto/local/message.h"

namespace kvkeep {

template <typename T>
absl::Status ReadWhole(const local::Message& message, const char* name, T* value) {
  local::BodyReader reader(message.body);
  if (reader.Read(value) && reader.done()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", message.body.size(), " bytes came, it has ", sizeof(T)));
}

}  // namespace kvkeep
