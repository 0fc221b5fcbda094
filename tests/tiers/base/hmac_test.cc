#include "tiers/base/hmac.h"

#include <absl/strings/escaping.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

std::string Hkdf(const std::string& secret, const std::string& salt, const std::string& info,
                 size_t bytes) {
  std::string out(bytes, '\0');
  HkdfSha256(AsBytes(absl::HexStringToBytes(secret)), AsBytes(absl::HexStringToBytes(salt)),
             AsBytes(absl::HexStringToBytes(info)), std::as_writable_bytes(std::span(out)));
  return absl::BytesToHexString(out);
}

}  // namespace

TEST_CASE("keys are derived as RFC 5869 shows, of any length") {
  std::string ikm;
  for (int i = 0; i < 22; ++i) ikm += "0b";
  CHECK(Hkdf(ikm, "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9", 42) ==
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  CHECK(Hkdf(ikm, "", "", 42) ==
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
  CHECK(Hkdf(ikm, "", "", 10) == "8da4e775a563c18f715f");
}

}  // namespace kvkeep
