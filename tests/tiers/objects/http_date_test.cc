#include "tiers/objects/http_date.h"

#include <catch2/catch.hpp>

namespace kvkeep {

TEST_CASE("a date of HTTP is read as it is meant, and any other form is none") {
  CHECK(ParseHttpDate("Fri, 24 May 2013 00:00:00 GMT") == UnixSeconds(1369353600));
  CHECK(ParseHttpDate("Thu, 29 Feb 2024 23:59:60 GMT") == UnixSeconds(1709251200));
  CHECK(ParseHttpDate("Thu, 01 Jan 1970 00:00:00 GMT") == UnixSeconds(0));
  for (const char* text :
       {"", "Fri, 24 May 2013 00:00:00", "Fri, 24 May 2013 00:00:00 CET",
        "Friday, 24-May-13 00:00:00 GMT", "Fri May 24 00:00:00 2013",
        "Fri, 31 Feb 2013 00:00:00 GMT",
        "Fri, 24 may 2013 00:00:00 GMT", "Fri, 24 May 2013 24:00:00 GMT",
        "Fri, 24 May 2013 00:60:00 GMT", "Fri, 24 May 2013 00:00:61 GMT",
        "Fri, +4 May 2013 00:00:00 GMT", "Fri, 24 May -013 00:00:00 GMT",
        "Fri, 24 May 2013 0:00:00 GMT", "Fri, 24 May 2013 00:00 GMT"}) {
    INFO(text);
    CHECK_FALSE(ParseHttpDate(text).has_value());
  }
}

TEST_CASE("a time of XML is read with and without a fraction") {
  CHECK(ParseIsoTime("2013-05-24T00:00:00Z") == UnixSeconds(1369353600));
  CHECK(ParseIsoTime("2013-05-24T00:00:01.234Z") == UnixSeconds(1369353601));
  for (const char* text : {"", "2013-05-24T00:00:00", "2013-05-24 00:00:00Z",
                           "2013-13-24T00:00:00Z", "2013-05-24T00:00:00.Z",
                           "2013-05-24T00:00:00.1xZ",
                           "2013-05-24T00:00:00+00:00", "2013-05-24T0x:00:00Z"}) {
    INFO(text);
    CHECK_FALSE(ParseIsoTime(text).has_value());
  }
}

TEST_CASE("the time that is signed is read back") {
  CHECK(FormatAmzTime(UnixSeconds(1369353600)) == "20130524T000000Z");
  CHECK(FormatAmzTime(UnixSeconds(1709251199)) == "20240229T235959Z");
  CHECK(FormatAmzTime(UnixSeconds(-1)) == "19691231T235959Z");
}

}  // namespace kvkeep
