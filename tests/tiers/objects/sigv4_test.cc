#include "tiers/objects/sigv4.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <sstream>

#include "tiers/base/bytes.h"
#include "tiers/objects/uri_encode.h"

namespace kvkeep {
namespace {

SharedS3Keys KeysOf(const char* id, const char* secret, const char* token = "") {
  return std::make_shared<const S3Keys>(S3Keys{id, SecretText(secret), token, std::nullopt});
}

// ---- the test suite of AWS ----------------------------------------------------------------------

struct SuiteCase {
  std::string name;
  std::map<std::string, std::string> parts;  // req, creq, sts, authz
};

std::vector<SuiteCase> ReadSuite() {
  std::ifstream file("tests/tiers/objects/aws_sig_v4_test_suite");
  REQUIRE(file.good());
  std::vector<SuiteCase> cases;
  std::string part;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "==== ")) {
      cases.push_back({line.substr(5), {}});
      part.clear();
    } else if (absl::StartsWith(line, "---- ")) {
      part = line.substr(5);
    } else if (!part.empty()) {
      absl::StrAppend(&cases.back().parts[part], line, "\n");
    }
  }
  for (SuiteCase& c : cases) {
    for (auto& [name, text] : c.parts) text.pop_back();
  }
  return cases;
}

struct SuiteRequest {
  std::string method, path, query, body;
  HttpHeaders headers;
};

// Parses requests as the suite writes them: not encoded; a header's later lines are further values
// of it.
SuiteRequest ParseSuiteRequest(const std::string& text) {
  SuiteRequest request;
  const std::pair<std::string, std::string> halves =
      absl::StrSplit(text, absl::MaxSplits("\n\n", 1));
  request.body = halves.second;
  const std::vector<std::string> lines = absl::StrSplit(halves.first, '\n');
  const size_t first = lines[0].find(' '), last = lines[0].rfind(' ');
  request.method = lines[0].substr(0, first);
  const std::string target = lines[0].substr(first + 1, last - first - 1);
  const std::pair<std::string, std::string> parts = absl::StrSplit(target, absl::MaxSplits('?', 1));
  request.path = EncodeUriPath(parts.first);
  UriQuery query;
  for (const absl::string_view pair : absl::StrSplit(parts.second, '&', absl::SkipEmpty())) {
    query.push_back(absl::StrSplit(pair, absl::MaxSplits('=', 1)));
  }
  request.query = EncodeUriQuery(query);
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    if (lines[i][0] == ' ') {
      request.headers.push_back({request.headers.back().name, lines[i]});
      continue;
    }
    const size_t colon = lines[i].find(':');
    request.headers.push_back({lines[i].substr(0, colon), lines[i].substr(colon + 1)});
  }
  return request;
}

// Returns the words behind the last "Signature=".
std::string SignatureIn(const std::string& authorization) {
  return authorization.substr(authorization.rfind('=') + 1);
}

// ---- the examples of S3's documentation ---------------------------------------------------------

std::string SignDocumented(absl::string_view method, absl::string_view path, const UriQuery& query,
                           HttpHeaders headers, absl::string_view payload) {
  SigV4Signer signer("us-east-1");
  const auto keys = KeysOf("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
  headers.push_back({"Host", "examplebucket.s3.amazonaws.com"});
  signer.Sign(keys, UnixSeconds(1369353600), method, EncodeUriPath(path), EncodeUriQuery(query),
              Sha256Hex(AsBytes(payload)), &headers);
  return SignatureIn(std::string(FindHeader(headers, "authorization")));
}

}  // namespace

TEST_CASE("each case of AWS's test suite comes out as published, step by step") {
  SigV4Signer signer("us-east-1", "service");
  const auto keys = KeysOf("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY");
  const UnixSeconds at(1440938160);
  std::vector<SuiteCase> cases = ReadSuite();
  CHECK(cases.size() == 22);
  for (SuiteCase& c : cases) {
    INFO(c.name);
    const SuiteRequest request = ParseSuiteRequest(c.parts["req"]);
    const std::string payload = Sha256Hex(AsBytes(request.body));
    const RequestToSign to_sign{request.method, request.path, request.query, request.headers,
                                payload};
    const std::string canonical = CanonicalRequest(to_sign);
    CHECK(canonical == c.parts["creq"]);
    CHECK(StringToSign(at, "20150830/us-east-1/service/aws4_request", canonical) ==
          c.parts["sts"]);
    CHECK(signer.Authorization(keys, at, to_sign) == c.parts["authz"]);
  }
}

TEST_CASE("the examples of S3's documentation have the signatures that it prints") {
  CHECK(SignDocumented("GET", "/test.txt", {}, {{"Range", "bytes=0-9"}}, "") ==
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  CHECK(SignDocumented("PUT", "/test$file.text", {},
                       {{"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                        {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                       "Welcome to Amazon S3.") ==
        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
  CHECK(SignDocumented("GET", "/", {{"lifecycle", ""}}, {}, "") ==
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  CHECK(SignDocumented("GET", "/", {{"max-keys", "2"}, {"prefix", "J"}}, {}, "") ==
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("another client of S3 signs the same: odd names, ports, tokens, the end of a day") {
  // Made with botocore 1.43, S3SigV4Auth.
  struct Case {
    const char *method, *host, *path, *token;
    UriQuery query;
    HttpHeaders headers;
    int64_t at;
    const char* signature;
  };
  const std::vector<Case> cases = {
      {"PUT", "s3.example.com:9000", "/bucket/kv/1/0ab/a b+c//..\xc3\xa4", "", {},
       {{"x-amz-checksum-crc32c", "yZRlqg=="}, {"x-amz-storage-class", "STANDARD"}}, 1772323199,
       "4791cd36da5ed325b9767d55f70be9f11ffc42382fd14d10845b4af6b12484b5"},
      {"GET", "bucket.s3.example.com", "/", "FQoDYXdz//token+/=",
       {{"list-type", "2"}, {"prefix", "kv/1/0ab/"}, {"continuation-token", "a+b=="},
        {"max-keys", "1000"}},
       {}, 1835395200, "9408cc5234c8801c55fb2d7a5519ab36d44e4b693f3d5e8033468883043b88c2"},
      {"DELETE", "[::1]:9000", "/bucket/x~y_z-.", "", {}, {}, 1798718401,
       "35998a09077c01d6e10e3572f572ddbd76a0b12cac7fda0b9cd9033fdfc2825c"}};
  SigV4Signer signer("eu-central-1");
  for (const Case& c : cases) {
    INFO(c.path);
    HttpHeaders headers = c.headers;
    headers.push_back({"host", c.host});
    signer.Sign(KeysOf("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", c.token),
                UnixSeconds(c.at), c.method, EncodeUriPath(c.path), EncodeUriQuery(c.query),
                kEmptyPayloadHash, &headers);
    CHECK(SignatureIn(std::string(FindHeader(headers, "Authorization"))) == c.signature);
    CHECK(FindHeader(headers, "x-amz-security-token") == c.token);
  }
}

TEST_CASE("the key of the day is not used for other keys or on another day") {
  SigV4Signer kept("us-east-1");
  const auto one = KeysOf("A", "secret one"), two = KeysOf("A", "secret two");
  const UnixSeconds midnight(1369353600);
  const auto sign = [](SigV4Signer& signer, const SharedS3Keys& keys, UnixSeconds at) {
    const HttpHeaders headers = {{"host", "h"}, {"x-amz-date", FormatAmzTime(at)}};
    return signer.Authorization(keys, at, {"GET", "/", "", headers, kUnsignedPayload});
  };
  for (const auto& keys : {one, two, one, one}) {
    for (const int64_t seconds : {-1, 0, 1, 86399, 86400}) {
      const UnixSeconds at(midnight.value() + seconds);
      SigV4Signer fresh("us-east-1");
      CHECK(sign(kept, keys, at) == sign(fresh, keys, at));
    }
  }
  CHECK(sign(kept, one, midnight) != sign(kept, two, midnight));
}

TEST_CASE("every byte but the unreserved ones is encoded, once, and paths stay as they are") {
  CHECK(EncodeUriPart("AZaz09-._~") == "AZaz09-._~");
  CHECK(EncodeUriPart(" /%+*\xff") == "%20%2F%25%2B%2A%FF");
  CHECK(EncodeUriPart(absl::string_view("\0", 1)) == "%00");
  CHECK(EncodeUriPath("/a//b/../c d/%41") == "/a//b/../c%20d/%2541");
  CHECK(EncodeUriQuery({}).empty());
  CHECK(EncodeUriQuery({{"b", "2"}, {"a", "z/"}, {"a", ""}, {"A", "1"}}) == "A=1&a=&a=z%2F&b=2");
}

}  // namespace kvkeep
