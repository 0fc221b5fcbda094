// One GetFrame, encoded by hand so that its payload need not be copied: all fields but the
// payload's bytes go into one string that ends with the payload's tag and length; the payload
// follows as it lies in memory. Together they are the message that the generated code would write.
#pragma once

#include <string>

#include "server/requests/get_frame_header.h"

namespace kvkeep {

std::string EncodeGetFrameHeader(const GetFrameHeader& header);

}  // namespace kvkeep
