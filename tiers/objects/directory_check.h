// CheckDirectory: checks whether a directory that machines share can be a G4 of this process's
// user: its mark is there, files can be made beside those of other users and removed again, and
// files of others can be read. For people who are about to trust one.
//
// Looks at a bounded part of it, blocks as long as the file system does, and leaves nothing behind.
#pragma once

#include <absl/strings/string_view.h>

#include <string>
#include <vector>

#include "tiers/objects/bucket_check.h"

namespace kvkeep {

// `mark`: the mark that must be there; empty: any. Ends at a bad finding if nothing works at all.
std::vector<BucketFinding> CheckDirectory(const std::string& path, absl::string_view mark);

}  // namespace kvkeep
