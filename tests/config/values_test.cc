#include "config/values.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>

#include "tiers/base/units.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;

constexpr char kIsNoSize[] =
    "is not a size: write a whole number with KiB, MiB, GiB, TiB (or decimal KB, MB, GB, TB), like "
    "64GiB";

}  // namespace

TEST_CASE("sizes are binary or decimal by their unit") {
  CHECK(*ParseSize("0") == 0);
  CHECK(*ParseSize("4096") == 4096);
  CHECK(*ParseSize("4096B") == 4096);
  CHECK(*ParseSize("64GiB") == 64 * kGiB);
  CHECK(*ParseSize("512 MiB") == 512 * kMiB);
  CHECK(*ParseSize("1TiB") == kTiB);
  CHECK(*ParseSize("1KB") == 1000);
  CHECK(*ParseSize("1kB") == 1000);
  CHECK(*ParseSize("3TB") == 3'000'000'000'000);
  CHECK(*ParseSize("18446744073709551615") == UINT64_MAX);
}

TEST_CASE("what is no size is told so, with the text") {
  for (const char* text : {"", "GiB", "-1", "1.5GiB", "64G", "64gib", "0x10", "1e3", "1_000",
                           "64GiBB", "18446744073709551616", "+1", "64GiB 1"}) {
    CHECK(std::string(ParseSize(text).status().message()) ==
          absl::StrCat("'", text, "' ", kIsNoSize));
  }
  CHECK(std::string(ParseSize("16777216TiB").status().message()) ==
        "'16777216TiB' is too large for 64 bits");
}

TEST_CASE("counts are decimal with k, M, G and binary with Ki, Mi, Gi") {
  CHECK(*ParseCount("65536") == 65536);
  CHECK(*ParseCount("64k") == 64'000);
  CHECK(*ParseCount("64Ki") == 65'536);
  CHECK(*ParseCount("4M") == 4'000'000);
  CHECK(*ParseCount("1G") == 1'000'000'000);
  for (const char* text : {"", "k", "4MiB", "4m", "-4", "4.5M"}) CHECK_FALSE(ParseCount(text).ok());
}

TEST_CASE("shares are percentages") {
  CHECK(*ParseFraction("25%") == 0.25);
  CHECK(*ParseFraction("12.5%") == 0.125);
  CHECK(*ParseFraction("100%") == 1.0);
  for (const char* text : {"", "%", "25", "0.25", "-5%", "nan%", "inf%", "1e1%", "1.2.3%", ".%"}) {
    CHECK_FALSE(ParseFraction(text).ok());
  }
  CHECK(std::string(ParseFraction("0.25").status().message()) ==
        "'0.25' is not a percentage: write it with a %, like 25%");
}

TEST_CASE("times have a unit") {
  CHECK(*ParseDuration("250ms") == milliseconds(250));
  CHECK(*ParseDuration("15s") == milliseconds(15'000));
  CHECK(*ParseDuration("1m") == milliseconds(60'000));
  CHECK(*ParseDuration("2h") == milliseconds(7'200'000));
  CHECK(*ParseDuration("7d") == std::chrono::hours(168));
  for (const char* text :
       {"", "15", "s", "1w", "-1s", "1.5s", "99999999999999999h", "18446744073709551615ms"}) {
    CHECK_FALSE(ParseDuration(text).ok());
  }
}

TEST_CASE("what is formatted is read back as the same value, in the largest whole unit") {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, uint64_t{1024},
                               uint64_t{1025}, 3 * kMiB, 64 * kGiB, kTiB + kGiB, UINT64_MAX}) {
    CHECK(*ParseSize(FormatSize(value)) == value);
    CHECK(*ParseCount(FormatCount(value)) == value);
  }
  CHECK(FormatSize(64 * kGiB) == "64GiB");
  CHECK(FormatSize(kTiB + kGiB) == "1025GiB");
  CHECK(FormatCount(4'000'000) == "4M");
  CHECK(FormatCount(65536) == "65536");
  for (int permille = 0; permille <= 1000; ++permille) {
    const double fraction = permille / 1000.0;
    CHECK(*ParseFraction(FormatFraction(fraction)) == Approx(fraction).margin(1e-12));
  }
  for (const milliseconds value : {milliseconds(0), milliseconds(1), milliseconds(1500),
                                   milliseconds(60'000), milliseconds(7'200'000)}) {
    CHECK(*ParseDuration(FormatDuration(value)) == value);
  }
  CHECK(FormatDuration(milliseconds(1500)) == "1500ms");
}

TEST_CASE("an address is host and port") {
  for (const char* text :
       {"127.0.0.1:9464", "localhost:0", "[::1]:9464", "node-3.example:65535", "0.0.0.0:1"}) {
    CHECK(CheckAddress(text).ok());
  }
  for (const char* text :
       {"", "9464", ":9464", "localhost", "localhost:", "localhost:65536", "::1:80", "[::1]",
        "[::1:80", "[]:80", "a b:80", "a:-1", "a:+1", "http://a:80"}) {
    INFO(text);
    CHECK_FALSE(CheckAddress(text).ok());
  }
}

TEST_CASE("a path is absolute, printable and not too long; a socket's is shorter") {
  CHECK(CheckPath("/").ok());
  CHECK(CheckPath("/var/lib/kvkeep/\xc3\xa9").ok());
  for (const std::string& text :
       {std::string(""), std::string("var"), std::string("~/x"), std::string("/a\nb"),
        std::string("/a\0b", 4), absl::StrCat("/", std::string(1024, 'a'))}) {
    CHECK_FALSE(CheckPath(text).ok());
  }
  CHECK(CheckPath(absl::StrCat("/", std::string(1023, 'a'))).ok());
  CHECK(CheckSocketPath(absl::StrCat("/", std::string(106, 'a'))).ok());
  CHECK_FALSE(CheckSocketPath(absl::StrCat("/", std::string(107, 'a'))).ok());
}

TEST_CASE("a mode is octal, with or without a leading zero") {
  CHECK(*ParseMode("0660") == 0660);
  CHECK(*ParseMode("777") == 0777);
  CHECK(FormatMode(0660) == "0660");
  CHECK(FormatMode(0) == "0000");
  for (const char* text : {"", "66", "00660", "0668", "0x1b0", "rw-rw----", "-660", " 660"}) {
    INFO(text);
    CHECK_FALSE(ParseMode(text).ok());
  }
}

TEST_CASE("numbers stand in brackets, none twice, and there are not too many") {
  using Numbers = std::vector<uint32_t>;
  CHECK(*ParseNumbers("[]") == Numbers{});
  CHECK(*ParseNumbers("[0,4294967295 , 7]") == Numbers{0, 4294967295, 7});
  CHECK(FormatNumbers({1000, 1001}) == "[1000, 1001]");
  for (const char* text : {"", "1", "[1", "1]", "[1,]", "[,]", "[-1]", "[+1]", "[4294967296]",
                           "[0x10]", "[root]", "[1 2]", "[1, 2, 1]"}) {
    INFO(text);
    CHECK_FALSE(ParseNumbers(text).ok());
  }
  Numbers many;
  for (uint32_t i = 0; i < kMaxNumbers; ++i) many.push_back(i);
  CHECK(*ParseNumbers(FormatNumbers(many)) == many);
  many.push_back(kMaxNumbers);
  CHECK_FALSE(ParseNumbers(FormatNumbers(many)).ok());
}

TEST_CASE("a tenant's name has few letters, a group's is a word or a number") {
  for (const char* text : {"a", "team-a", "0", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    INFO(text);
    CHECK(CheckTenantName(text).ok());
  }
  for (const char* text : {"", "A", "a_b", "a b", "a/b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    INFO(text);
    CHECK_FALSE(CheckTenantName(text).ok());
  }
  CHECK(CheckGroupName("kvkeep-clients").ok());
  CHECK(CheckGroupName("1000").ok());
  for (const char* text : {"", "-1", "a b", "a:b"}) CHECK_FALSE(CheckGroupName(text).ok());
}

TEST_CASE("a proxy is a host and a port by http, and shows no user") {
  for (const char* proxy :
       {"http://proxy.example:3128", "http://[::1]:3128", "http://10.0.0.1:80"}) {
    INFO(proxy);
    CHECK(CheckProxy(proxy).ok());
  }
  for (const char* proxy :
       {"proxy.example:3128", "https://proxy.example:3128", "http://proxy",
        "http://user:secret@proxy:3128", "http://proxy:3128/", "http://:3128"}) {
    INFO(proxy);
    CHECK_FALSE(CheckProxy(proxy).ok());
  }
}

TEST_CASE("G4 is at a bucket by http or https, or in a directory") {
  for (const char* url : {"http://127.0.0.1:9000/kvs", "https://s3.example/kvs", "file:///mnt/kv",
                          "http://[::1]:9000/kvs"}) {
    INFO(url);
    CHECK(CheckG4Url(url).ok());
  }
  for (const char* url : {"", "kvs", "s3://kvs", "http://host", "http://host/", "http:///kvs",
                          "http://host/kvs/deeper", "http://user@host/kvs", "http://host/kv",
                          "http://host/kvs?a",
                          "http://host/kvs#a", "http://ho st/kvs", "file://kv", "file://"}) {
    INFO(url);
    CHECK_FALSE(CheckG4Url(url).ok());
  }
  const G4Place bucket = SplitG4Url("https://s3.example:9000/kvs");
  CHECK(bucket.endpoint == "https://s3.example:9000");
  CHECK(bucket.bucket == "kvs");
  CHECK(bucket.directory.empty());
  CHECK(SplitG4Url("file:///mnt/kv").directory == "/mnt/kv");
  for (const char* prefix : {"", "a", "a/b", "a/b-", "A.b_c/"}) CHECK(CheckG4Prefix(prefix).ok());
  for (const char* prefix : {"/a", "a//b", "../a", "a b", "a%", "\n"}) {
    INFO(prefix);
    CHECK_FALSE(CheckG4Prefix(prefix).ok());
  }
  CHECK(CheckG4Prefix(std::string(256, 'a')).ok());
  CHECK_FALSE(CheckG4Prefix(std::string(257, 'a')).ok());
  CHECK(CheckPlainName("eu-west_1.x").ok());
  CHECK(CheckPlainName(std::string(64, 'a')).ok());
  for (const std::string& name : {std::string(), std::string("a b"), std::string(65, 'a')}) {
    CHECK_FALSE(CheckPlainName(name).ok());
  }
}

TEST_CASE("quoted text stays one readable line") {
  CHECK(QuoteForMessage("a\nb\x01") == "'a\\nb\\x01'");
  CHECK(QuoteForMessage("caf\xc3\xa9") == "'caf\xc3\xa9'");
  CHECK(QuoteForMessage(std::string(500, 'x')).size() == 85);
}

TEST_CASE("GPUs are UUIDs as nvidia-smi shows them, or all and nothing beside it") {
  const std::string uuid = "GPU-b21c0c3e-0000-4000-8000-0123456789ab";
  CHECK(ParseGpus("[" + uuid + ", MIG-b21c0c3e-0000-4000-8000-0123456789ac]")->size() == 2);
  CHECK(ParseGpus("[all]").value() == std::vector<std::string>{"all"});
  CHECK(ParseGpus("[]")->empty());
  for (const std::string& wrong :
       {std::string("all"), "[all, " + uuid + "]", "[" + uuid + ", " + uuid + "]",
        "[" + uuid.substr(4) + "]", "[" + uuid + "0]", "[" + uuid.substr(0, 39) + "]",
        std::string("[0]"), std::string("[GPU-B21C0C3E-0000-4000-8000-0123456789AB]"),
        std::string("[GPU-b21c0c3e-00000-400-8000-0123456789ab]")}) {
    INFO(wrong);
    CHECK_FALSE(ParseGpus(wrong).ok());
  }
}

}  // namespace kvkeep
