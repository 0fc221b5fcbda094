// Answers of an object server, and an operator's settings for one: any bytes. Each input is
// refused, or read as something within its limits that means what was read.
//
// The first byte chooses the kind.
#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include <algorithm>
#include <string>

#include "tests/fuzz/input.h"
#include "tests/fuzz/target.h"
#include "tiers/base/check.h"
#include "tiers/objects/s3_answer.h"
#include "tiers/objects/s3_key_source.h"
#include "tiers/objects/s3_listing.h"
#include "tiers/objects/s3_url.h"
#include "tiers/objects/xml.h"

namespace kvkeep {
namespace {

enum class Text : uint8_t { kXml, kListing, kError, kHeaders, kEndpoint, kKeys };
constexpr uint8_t kTexts = 6;

void PrintXml(const XmlElement& element, std::string* out) {
  absl::StrAppend(out, "<", element.name, ">");
  absl::StrAppend(out, absl::StrReplaceAll(element.text, {{"&", "&amp;"}, {"<", "&lt;"}}));
  for (const XmlElement& child : element.children) PrintXml(child, out);
  absl::StrAppend(out, "</", element.name, ">");
}

bool SameXml(const XmlElement& a, const XmlElement& b) {
  return a.name == b.name && a.text == b.text &&
         std::equal(a.children.begin(), a.children.end(), b.children.begin(), b.children.end(),
                    SameXml);
}

void CheckXml(const std::string& text) {
  const absl::StatusOr<XmlElement> root = ParseXml(text);
  if (!root.ok()) return;
  std::string printed;
  PrintXml(*root, &printed);
  const absl::StatusOr<XmlElement> again = ParseXml(printed);
  KVKEEP_CHECK(again.ok() && SameXml(*root, *again));
}

void CheckListing(const std::string& text) {
  const absl::StatusOr<ObjectListing> listing = ParseS3Listing(text);
  if (!listing.ok()) return;
  KVKEEP_CHECK(listing->objects.size() <= ObjectListing::kMaxObjects);
  KVKEEP_CHECK(listing->next_token.size() <= ObjectListing::kMaxTokenBytes);
  for (const ListedObject& object : listing->objects) {
    KVKEEP_CHECK(!object.name.empty() && object.name.size() <= S3Urls::kMaxKeyBytes);
  }
}

void CheckError(const std::string& text) {
  const ObjectError error = ParseS3Error(text);
  for (const std::string& part : {error.code, error.message, error.request_id}) {
    KVKEEP_CHECK(part.size() <= 256 && std::all_of(part.begin(), part.end(), absl::ascii_isprint));
  }
  const ObjectOutcome outcome = Judge({.verb = ObjectVerb::kGet}, 404, error.code);
  KVKEEP_CHECK((outcome == ObjectOutcome::kAbsent) == (error.code == "NoSuchKey"));
}

void CheckHeaders(const std::string& text) {
  if (const auto range = ParseContentRange(text)) {
    KVKEEP_CHECK(range->first <= range->last);
    const std::string end =
        range->object_bytes.has_value() ? absl::StrCat(*range->object_bytes) : "*";
    const std::string again = absl::StrCat("bytes ", range->first, "-", range->last, "/", end);
    KVKEEP_CHECK(ParseContentRange(again) == range);
  }
  if (const auto pause = ParseRetryAfter(text, UnixSeconds(1'700'000'000))) {
    KVKEEP_CHECK(pause->count() >= 0 && pause->count() <= 86400);
  }
  if (const auto etag = ParseStrongETag(text)) KVKEEP_CHECK(*etag == text && etag->size() <= 128);
  if (const auto at = ParseIsoTime(text)) KVKEEP_CHECK(FormatAmzTime(*at).size() == 16);
}

void CheckEndpoint(const std::string& text, bool virtual_host) {
  const S3UrlOptions options{.endpoints = {text},
                             .bucket = "bucket",
                             .prefix = text.substr(0, 20),
                             .virtual_host = virtual_host};
  S3UrlOptions without_prefix = options;
  without_prefix.prefix.clear();
  for (const S3UrlOptions& tried : {options, without_prefix}) {
    const absl::StatusOr<S3Urls> urls = S3Urls::Make(tried);
    if (!urls.ok()) {
      KVKEEP_CHECK(absl::StartsWith(urls.status().message(), "g4."));
      continue;
    }
    const std::string url = urls->Object(EndpointNumber(0), "n").url();
    KVKEEP_CHECK(std::all_of(url.begin(), url.end(), absl::ascii_isgraph));
    KVKEEP_CHECK(absl::StrContains(url, "bucket") && absl::EndsWith(url, "/n"));
    KVKEEP_CHECK(url.find_first_of("?#@\\") == std::string::npos);
  }
}

void CheckKeys(const std::string& text) {
  const absl::StatusOr<S3Keys> keys = ParseS3Keys(text);
  if (!keys.ok()) return;
  for (const absl::string_view part : {absl::string_view(keys->access_key_id),
                                       absl::string_view(keys->session_token),
                                       keys->secret_access_key.reveal()}) {
    KVKEEP_CHECK(std::all_of(part.begin(), part.end(), absl::ascii_isgraph));
  }
}

void RunObjects(std::span<const uint8_t> bytes) {
  InputReader input(bytes);
  const uint8_t first = input.U8();
  const std::string text = input.RestText();
  switch (static_cast<Text>(first % kTexts)) {
    case Text::kXml: return CheckXml(text);
    case Text::kListing: return CheckListing(text);
    case Text::kError: return CheckError(text);
    case Text::kHeaders: return CheckHeaders(text);
    case Text::kEndpoint: return CheckEndpoint(text, (first & 0x80) != 0);
    case Text::kKeys: return CheckKeys(text);
  }
}

std::vector<FuzzInput> ObjectsSeeds() {
  std::vector<FuzzInput> seeds;
  const auto add = [&](Text kind, absl::string_view text) {
    FuzzInput& seed = seeds.emplace_back();
    seed.push_back(static_cast<uint8_t>(kind));
    seed.insert(seed.end(), text.begin(), text.end());
  };
  const std::string listing =
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3/\"><IsTruncated>true</IsTruncated>"
      "<NextContinuationToken>t</NextContinuationToken><Contents><Key>a&amp;&#x41;</Key>"
      "<LastModified>2013-05-24T00:00:00.000Z</LastModified><Size>4096</Size></Contents>"
      "</ListBucketResult>";
  const std::string error =
      "<Error><Code>NoSuchKey</Code><Message>none &lt;</Message><RequestId>1</RequestId></Error>";
  for (const std::string& xml : {listing, error}) {
    add(Text::kXml, xml);
    add(Text::kListing, xml);
    add(Text::kError, xml);
  }
  add(Text::kHeaders, "bytes 0-4095/1234567");
  add(Text::kHeaders, "\"d41d8cd98f00b204e9800998ecf8427e\"");
  add(Text::kHeaders, "Fri, 24 May 2013 00:00:00 GMT");
  add(Text::kHeaders, "120");
  add(Text::kEndpoint, "https://s3.eu-central-1.amazonaws.com:8443");
  add(Text::kEndpoint, "http://[2001:db8::1]:9000/");
  add(Text::kKeys, "AKIAIOSFODNN7EXAMPLE\nwJalrXUtnFEMI/K7MDENG\ntoken\n");
  return seeds;
}

}  // namespace

const FuzzTarget kObjectsTarget{.name = "objects", .run = RunObjects, .seeds = ObjectsSeeds};

}  // namespace kvkeep
