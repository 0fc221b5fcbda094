#include "tiers/objects/xml.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tiers/objects/s3_listing.h"

namespace kvkeep {
namespace {

std::string Repeated(size_t times, absl::string_view text) {
  std::string all;
  for (size_t i = 0; i < times; ++i) absl::StrAppend(&all, text);
  return all;
}

constexpr char kListing[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
    "<Prefix>kv/</Prefix><KeyCount>2</KeyCount><MaxKeys>2</MaxKeys>"
    "<IsTruncated>true</IsTruncated><NextContinuationToken>1a+/=</NextContinuationToken>"
    "<Contents><Key>kv/1/a&amp;b</Key><LastModified>2013-05-24T00:00:00.000Z</LastModified>"
    "<ETag>&quot;e&quot;</ETag><Size>4096</Size><StorageClass>STANDARD</StorageClass></Contents>"
    "<Contents><Key>kv/1/c</Key><LastModified>2013-05-24T00:00:01Z</LastModified>"
    "<Size>0</Size></Contents></ListBucketResult>";

}  // namespace

TEST_CASE("elements, text and references of a document are read") {
  const auto root = ParseXml(
      "\xef\xbb\xbf<?xml version='1.0'?>\n <a x='1' y = \"<2\" >\n</a>");
  CHECK_FALSE(root.ok());  // '<' in a value
  const auto good = ParseXml(
      "\xef\xbb\xbf<?xml version='1.0'?>\n<a:A x='1' y = \"2>\">\n <b>1 &lt;&gt;&amp;&quot;&apos; "
      "&#65;&#x1F600;&#xe4;&#x20AC;\n</b> <c/> <d ></d\n> </a:A>\n");
  REQUIRE(good.ok());
  CHECK(good->name == "a:A");
  CHECK(good->text.empty());
  CHECK(good->children.size() == 3);
  CHECK(good->TextOf("b") == "1 <>&\"' A\xf0\x9f\x98\x80\xc3\xa4\xe2\x82\xac\n");
  CHECK(good->Child("c") != nullptr);
  CHECK(good->Child("e") == nullptr);
  CHECK(good->TextOf("e").empty());
}

TEST_CASE("what is no plain document of elements is refused, and it is said where") {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "no element at byte 0"},
      {"text", "no element"},
      {"<?xml version='1.0'", "declaration"},
      {"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>", "no name at byte 1"},
      {"<a><!-- x --></a>", "no name"},
      {"<a><![CDATA[x]]></a>", "no name"},
      {"<a><?php x?></a>", "no name"},
      {"<a>&b;</a>", "entity"},
      {"<a>&amp</a>", "'&'"},
      {"<a>&#0;</a>", "entity"},
      {"<a>&#xd800;</a>", "entity"},
      {"<a>&#x110000;</a>", "entity"},
      {"<a>&#x0x41;</a>", "entity"},
      {"<a>&#-5;</a>", "entity"},
      {"<a>\x01</a>", "control"},
      {"<a>x<b/></a>", "text beside"},
      {"<a><b/>x</a>", "text beside"},
      {"<a></b>", "another element"},
      {"<a></ab>", "does not end"},
      {"<a></a", "does not end"},
      {"<a>", "no element"},
      {"<a", "does not end"},
      {"<a b></a>", "without a value"},
      {"<a b=c></a>", "without quotes"},
      {"<a b='c></a>", "without quotes"},
      {"<a b=", "without quotes"},
      {"<a 1='c'></a>", "no name"},
      {"<a/><b/>", "behind the root"},
      {"<1/>", "no name"},
  };
  for (const auto& [text, why] : bad) {
    const absl::Status status = ParseXml(text).status();
    INFO(text << " -> " << status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(absl::StrContains(status.message(), why));
  }
}

TEST_CASE("a document has limits: bytes, depth, elements") {
  CHECK(ParseXml(absl::StrCat(Repeated(8, "<a>"), Repeated(8, "</a>"))).ok());
  CHECK_FALSE(ParseXml(absl::StrCat(Repeated(9, "<a>"), Repeated(9, "</a>"))).ok());
  CHECK_FALSE(ParseXml(Repeated(100'000, "<a>")).ok());
  CHECK(ParseXml(absl::StrCat("<a>", Repeated(kMaxXmlElements - 1, "<b/>"), "</a>")).ok());
  CHECK_FALSE(ParseXml(absl::StrCat("<a>", Repeated(kMaxXmlElements, "<b/>"), "</a>")).ok());
  CHECK_FALSE(ParseXml(absl::StrCat("<a>", std::string(kMaxXmlBytes, 'x'), "</a>")).ok());
}

TEST_CASE("a page of a list is read, with the token of the next one") {
  const auto page = ParseS3Listing(kListing);
  REQUIRE(page.ok());
  CHECK(page->next_token == "1a+/=");
  REQUIRE(page->objects.size() == 2);
  CHECK(page->objects[0] == ListedObject{"kv/1/a&b", 4096, UnixSeconds(1369353600)});
  CHECK(page->objects[1] == ListedObject{"kv/1/c", 0, UnixSeconds(1369353601)});
  const auto last = ParseS3Listing(
      "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
  CHECK((last.ok() && *last == ObjectListing{}));
}

TEST_CASE("a page that contradicts itself or is over a limit is none") {
  const std::string object =
      "<Contents><Key>k</Key><LastModified>2013-05-24T00:00:00Z</LastModified><Size>1</Size>"
      "</Contents>";
  const auto page = [](absl::string_view inside) {
    return ParseS3Listing(absl::StrCat("<ListBucketResult>", inside, "</ListBucketResult>"));
  };
  const std::string whole = "<IsTruncated>false</IsTruncated>";
  CHECK(page(absl::StrCat(whole, Repeated(1000, object))).ok());
  const std::vector<std::string> bad = {
      "", "<IsTruncated>TRUE</IsTruncated>", "<IsTruncated>true</IsTruncated>",
      absl::StrCat("<IsTruncated>true</IsTruncated><NextContinuationToken>",
                   std::string(4097, 't'), "</NextContinuationToken>"),
      absl::StrCat(whole, Repeated(1001, object)),
      absl::StrCat(whole, "<Contents><LastModified>2013-05-24T00:00:00Z</LastModified>"
                          "<Size>1</Size></Contents>"),
      absl::StrCat(whole, "<Contents><Key>", std::string(1025, 'k'),
                   "</Key><LastModified>2013-05-24T00:00:00Z</LastModified>"
                   "<Size>1</Size></Contents>"),
      absl::StrCat(whole, "<Contents><Key>k</Key><Size>1</Size></Contents>"),
      absl::StrCat(whole, "<Contents><Key>k</Key><Size>-1</Size>"
                          "<LastModified>2013-05-24T00:00:00Z</LastModified></Contents>"),
  };
  for (const std::string& inside : bad) {
    INFO(inside.substr(0, 200));
    CHECK(absl::IsDataLoss(page(inside).status()));
  }
  CHECK(absl::IsDataLoss(ParseS3Listing("<html>").status()));
  CHECK(absl::IsDataLoss(ParseS3Listing("<Error/>").status()));
}

}  // namespace kvkeep
