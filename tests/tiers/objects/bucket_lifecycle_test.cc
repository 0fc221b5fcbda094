#include "tiers/objects/bucket_lifecycle.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

namespace kvkeep {
namespace {

// Days of a configuration with these rules, for objects below kv/.
std::optional<uint32_t> Days(absl::string_view rules) {
  return DaysToExpiry(
      absl::StrCat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>"
                   "<LifecycleConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">",
                   rules, "</LifecycleConfiguration>"),
      "kv/");
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
        "<Filter><Prefix>kv/i/00</Prefix></Filter>", "<Prefix>kv/</Prefix>", "<Prefix/>", ""}) {
    CAPTURE(filter);
    CHECK(Days(Rule(filter)) == 7u);
  }
}

TEST_CASE("the first one of several counts") {
  CHECK(Days(Rule("<Filter/>", "<Expiration><Days>30</Days></Expiration>") + Rule("<Prefix/>") +
             Rule("<Filter/>", "<Expiration><Days>9</Days></Expiration>")) == 7u);
}

TEST_CASE("rules for others, or that do something else, do not count") {
  CHECK(Days("") == std::nullopt);
  CHECK(Days(Rule("<Filter><Prefix>other/</Prefix></Filter>")) == std::nullopt);
  CHECK(Days(Rule("<Filter><Tag><Key>a</Key><Value>b</Value></Tag></Filter>")) == std::nullopt);
  CHECK(Days(Rule("<Filter><And><Prefix>kv/</Prefix><Tag><Key>a</Key><Value>b</Value></Tag></And>"
                  "</Filter>")) == std::nullopt);
  CHECK(Days(Rule("<Filter/>", "<Expiration><Days>7</Days></Expiration>", "Disabled")) ==
        std::nullopt);
  for (const char* action :
       {"<Transition><Days>7</Days></Transition>", "<Expiration><Days>x</Days></Expiration>",
        "<Expiration><Date>2027-01-01T00:00:00Z</Date></Expiration>", "<Expiration/>",
        "<NoncurrentVersionExpiration><NoncurrentDays>7</NoncurrentDays>"
        "</NoncurrentVersionExpiration>"}) {
    CAPTURE(action);
    CHECK(Days(Rule("<Filter/>", action)) == std::nullopt);
  }
}

TEST_CASE("what is no such document says nothing") {
  for (const char* text : {"", "no XML", "<ListBucketResult/>", "<LifecycleConfiguration>"}) {
    CHECK(DaysToExpiry(text, "kv/") == std::nullopt);
  }
}

}  // namespace kvkeep
