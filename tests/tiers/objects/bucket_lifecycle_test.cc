#include "tiers/objects/bucket_lifecycle.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

BucketExpiry Read(absl::string_view rules, absl::string_view prefix = "kv/1/") {
  const auto expiry = ReadExpiry(
      absl::StrCat("<LifecycleConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
                   rules, "</LifecycleConfiguration>"),
      prefix);
  REQUIRE(expiry.has_value());
  return *expiry;
}
// Returns the days of unambiguous rules.
std::optional<uint32_t> Days(absl::string_view rules, absl::string_view prefix = "kv/1/") {
  const BucketExpiry expiry = Read(rules, prefix);
  CHECK_FALSE(expiry.unclear);
  return expiry.days;
}

std::string Rule(absl::string_view filter, absl::string_view action =
                                               "<Expiration><Days>7</Days></Expiration>",
                 absl::string_view status = "Enabled") {
  return absl::StrCat("<Rule><ID>one</ID>", filter, "<Status>", status, "</Status>", action,
                      "</Rule>");
}

}  // namespace

TEST_CASE("a rule by age for the bucket, the prefix, or a part of it counts, in both forms") {
  for (const char* filter :
       {"<Filter/>", "<Filter></Filter>", "<Filter><Prefix></Prefix></Filter>",
        "<Filter><Prefix>kv/</Prefix></Filter>", "<Filter><Prefix>k</Prefix></Filter>",
        "<Filter><Prefix>kv/1/00</Prefix></Filter>", "<Prefix>kv/</Prefix>", "<Prefix/>", ""}) {
    CAPTURE(filter);
    CHECK(Days(Rule(filter)) == 7u);
  }
}

TEST_CASE("the first one of several counts") {
  CHECK(Days(Rule("<Filter/>", "<Expiration><Days>30</Days></Expiration>") + Rule("<Prefix/>") +
             Rule("<Filter/>", "<Expiration><Days>9</Days></Expiration>")) == 7u);
}

TEST_CASE("a rule by size counts, as images are of any size") {
  for (const char* filter :
       {"<Filter><ObjectSizeGreaterThan>131072</ObjectSizeGreaterThan></Filter>",
        "<Filter><And><Prefix>kv/</Prefix><ObjectSizeLessThan>9</ObjectSizeLessThan></And>"
        "</Filter>",
        "<Filter><And><Prefix>kv/</Prefix></And></Filter>"}) {
    CAPTURE(filter);
    CHECK(Days(Rule(filter)) == 7u);
  }
}

TEST_CASE("rules for others, or that do something else, do not count") {
  CHECK(Days("") == std::nullopt);
  CHECK(Days(Rule("<Filter><Prefix>other/</Prefix></Filter>")) == std::nullopt);
  CHECK(Days(Rule("<Filter><Prefix>logs/</Prefix></Filter>"), "1/") == std::nullopt);
  CHECK(Days(Rule("<Filter><Prefix>kv/check/</Prefix></Filter>")) == std::nullopt);
  CHECK(Days(Rule("<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>")) == std::nullopt);
  CHECK(Days(Rule("<Filter><And><Prefix>kv/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And>"
                  "</Filter>")) == std::nullopt);
  CHECK(Days(Rule("<Filter/>", "<Expiration><Days>7</Days></Expiration>", "Disabled")) ==
        std::nullopt);
  for (const char* action :
       {"<Transition><Days>7</Days></Transition>",
        "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
        "<NoncurrentVersionExpiration><NoncurrentDays>7</NoncurrentDays>"
        "</NoncurrentVersionExpiration>"}) {
    CAPTURE(action);
    CHECK(Days(Rule("<Filter/>", action)) == std::nullopt);
  }
}

TEST_CASE("rules that move images to another class are told, and whether it answers reads") {
  const auto to = [](absl::string_view storage) {
    return absl::StrCat("<Transition><Days>7</Days><StorageClass>", storage,
                        "</StorageClass></Transition>");
  };
  CHECK(Read(Rule("<Filter/>")).moved_to.empty());
  CHECK(Read(Rule("<Filter/>", to("STANDARD_IA"))).moved_to == "STANDARD_IA");
  CHECK_FALSE(Read(Rule("<Filter/>", to("GLACIER_IR"))).archived);
  CHECK(Read(Rule("<Filter/>", to("DEEP_ARCHIVE"))).archived);
  const BucketExpiry several =
      Read(Rule("<Filter/>", to("GLACIER") + to("STANDARD_IA")) + Rule("<Prefix>kv/</Prefix>"));
  CHECK(several.archived);
  CHECK(several.moved_to == "GLACIER");
  CHECK(several.days == 7u);
  CHECK(Read(Rule("<Filter><Prefix>other/</Prefix></Filter>", to("GLACIER"))).moved_to.empty());
  CHECK(Read(Rule("<Filter/>", to("GLACIER"), "Disabled")).moved_to.empty());
}

TEST_CASE("rules that are not understood are no proof that nothing expires") {
  CHECK(Read(Rule("<Filter/>", "<Expiration><Date>2026-01-01T00:00:00Z</Date></Expiration>"))
            .unclear);
  CHECK(Read(Rule("<Filter><Newer>1</Newer></Filter>")).unclear);
  CHECK(Read("<Rule><Action><Delete/></Action><Condition><Age>30</Age></Condition></Rule>")
            .unclear);  // Google's
  CHECK_FALSE(Read(Rule("<Filter><Prefix>other/</Prefix></Filter>",
                        "<Expiration><Date>2026-01-01T00:00:00Z</Date></Expiration>"))
                  .unclear);
}

TEST_CASE("what is no such document says nothing") {
  for (const char* text : {"", "no XML", "<ListBucketResult/>", "<LifecycleConfiguration>"}) {
    CHECK_FALSE(ReadExpiry(text, "kv/1/").has_value());
  }
}

}  // namespace kvkeep
