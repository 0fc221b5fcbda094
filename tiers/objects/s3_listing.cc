#include "tiers/objects/s3_listing.h"

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/status_macros.h"
#include "tiers/objects/s3_url.h"
#include "tiers/objects/xml.h"

namespace kvkeep {
namespace {

absl::Status BadListing(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("a list of objects ", what));
}

absl::StatusOr<ListedObject> ParseListedObject(const XmlElement& contents) {
  ListedObject object;
  object.name = std::string(contents.TextOf("Key"));
  if (object.name.empty() || object.name.size() > S3Urls::kMaxKeyBytes) {
    return BadListing("has a key of no bytes or too many");
  }
  const absl::string_view size = contents.TextOf("Size");
  if (size.empty() || !std::all_of(size.begin(), size.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(size, &object.bytes)) {
    return BadListing("has an object without a size");
  }
  const std::optional<UnixSeconds> modified = ParseIsoTime(contents.TextOf("LastModified"));
  if (!modified.has_value()) return BadListing("has an object without a time");
  object.modified = *modified;
  return object;
}

}  // namespace

absl::StatusOr<ObjectListing> ParseS3Listing(absl::string_view body) {
  const absl::StatusOr<XmlElement> root = ParseXml(body);
  if (!root.ok()) return BadListing(absl::StrCat("is ", root.status().message()));
  if (root->name != "ListBucketResult") return BadListing("is none");
  ObjectListing listing;
  for (const XmlElement& child : root->children) {
    if (child.name != "Contents") continue;
    if (listing.objects.size() == ObjectListing::kMaxObjects) {
      return BadListing("has more than 1,000");
    }
    KVKEEP_ASSIGN_OR_RETURN(ListedObject object, ParseListedObject(child));
    listing.objects.push_back(std::move(object));
  }
  const absl::string_view truncated = root->TextOf("IsTruncated");
  if (truncated != "true" && truncated != "false") return BadListing("does not say if it is whole");
  if (truncated == "false") return listing;
  listing.next_token = std::string(root->TextOf("NextContinuationToken"));
  if (listing.next_token.empty() || listing.next_token.size() > ObjectListing::kMaxTokenBytes) {
    return BadListing("goes on, and does not say where");
  }
  return listing;
}

}  // namespace kvkeep
