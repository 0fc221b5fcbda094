// Access over TCP as the file configures it. Settings that would admit too many clients, or none,
// are refused.
#include <absl/strings/match.h>
#include <absl/strings/str_join.h>

#include <catch2/catch.hpp>

#include "config/config.h"
#include "tests/config/loaded.h"

namespace kvkeep {
namespace {

const std::string kFiles = "cert_file: /c, key_file: /k";

}  // namespace

TEST_CASE("TCP beyond loopback without TLS is refused unless the file says so in many words") {
  for (const char* own : {"127.0.0.1:9000", "127.8.9.1:1", "localhost:65535", "'[::1]:9000'"}) {
    INFO(own);
    CHECK(ErrorsOf(absl::StrCat("listen: {tcp: ", own, "}")) == "");
  }
  for (const char* open : {"0.0.0.0:9000", "10.0.0.1:9000", "'[::]:9000'", "node7:9000"}) {
    INFO(open);
    const std::string errors = ErrorsOf(absl::StrCat("listen: {tcp: ", open, "}"));
    CHECK(absl::StrContains(errors, "kv.yaml:1:15: listen.tcp: "));
    CHECK(absl::StrContains(errors, "is not a loopback address"));
    CHECK(absl::StrContains(errors, "listen.tcp_insecure_plaintext: true"));
    CHECK(ErrorsOf(absl::StrCat("listen: {tcp: ", open, ", tcp_insecure_plaintext: true}")) == "");
    CHECK(ErrorsOf(absl::StrCat("listen: {tcp: ", open, ", token_file: /t}\ntls: {", kFiles,
                                "}")) == "");
  }
}

TEST_CASE("tokens are not sent in clear beyond loopback") {
  CHECK(ErrorsOf("listen: {tcp: 127.0.0.1:9000, token_file: /t}") == "");
  CHECK(absl::StrContains(
      ErrorsOf("listen: {tcp: 0.0.0.0:9000, tcp_insecure_plaintext: true, token_file: /t}"),
      "listen.token_file: without TLS everybody on the way would read the tokens"));
  CHECK(absl::StrContains(ErrorsOf("listen: {tcp: 0.0.0.0:9000, tcp_insecure_plaintext: true}\n"
                                   "tenants: [{name: a, unix: /a, g2_share: 50%, token_file: /t}]"),
                          "tenants[0].token_file: without TLS"));
}

TEST_CASE("TLS that says of nobody who they are is refused beyond loopback, with a CA anywhere") {
  const std::string tls = absl::StrCat("\ntls: {", kFiles);
  CHECK(ErrorsOf(absl::StrCat("listen: {tcp: 127.0.0.1:9000}", tls, "}")) == "");
  CHECK(absl::StrContains(ErrorsOf(absl::StrCat("listen: {tcp: 0.0.0.0:9000}", tls, "}")),
                          "TLS alone admits every client"));
  CHECK(absl::StrContains(
      ErrorsOf(absl::StrCat("listen: {tcp: 127.0.0.1:9000}", tls, ", client_ca_file: /a}")),
      "no certificate belongs to a tenant yet"));
  CHECK(ErrorsOf(absl::StrCat("listen: {tcp: 0.0.0.0:9000, certificate_names: [any]}", tls,
                              ", client_ca_file: /a}")) == "");
}

TEST_CASE("what is of no use alone is refused with what is missing") {
  const struct {
    const char* text;
    const char* error;
  } cases[] = {
      {"listen: {tcp: 127.0.0.1:9}\ntls: {cert_file: /c}", "tls.cert_file: is of no use without"},
      {"listen: {tcp: 127.0.0.1:9}\ntls: {key_file: /c}", "tls.key_file: is of no use without"},
      {"listen: {tcp: 127.0.0.1:9}\ntls: {client_ca_file: /c}", "tls.client_ca_file: without"},
      {"tls: {cert_file: /c, key_file: /k}", "set listen.tcp"},
      {"listen: {token_file: /t}", "listen.token_file: tokens are for TCP"},
      {"listen: {tcp: 127.0.0.1:9, certificate_names: [a.b]}",
       "listen.certificate_names: clients show no certificate without tls.client_ca_file"},
      {"tls: {admin_certificate_names: [a.b]}", "tls.admin_certificate_names: clients show no"},
      {"listen: {tcp: 127.0.0.1:9, tcp_insecure_plaintext: true, token_file: /t}\n"
       "tls: {cert_file: /c, key_file: /k}",
       "listen.tcp_insecure_plaintext: says that there is no TLS"},
      {"listen: {socket_grant: write}", "listen.socket_grant: write: a client by listen.local"},
      {"listen: {bulk_tcp: 127.0.0.1:9}", "listen.bulk_tcp: needs listen.tcp"},
      {"listen: {tcp: 127.0.0.1:9, bulk_tcp: 127.0.0.1:9}", "is the same address as listen.tcp"},
      {"listen: {tcp: 127.0.0.1:9, bulk_tcp: 0.0.0.0:8}", "listen.bulk_tcp: '0.0.0.0:8' is not a"},
      {"listen: {bulk: /run/kvkeep/local.sock}", "listen.bulk: is the same socket as listen.local"},
  };
  for (const auto& wrong : cases) {
    INFO(wrong.text);
    CHECK(absl::StrContains(ErrorsOf(wrong.text), wrong.error));
  }
  CHECK(ErrorsOf("listen: {socket_grant: write, local: ''}") == "");
  CHECK(ErrorsOf("listen: {tcp: 127.0.0.1:9, bulk_tcp: 127.0.0.1:8}") == "");
}

TEST_CASE("names of certificates are read with their grants, and are one tenant's each") {
  const LoadResult good = LoadConfig(
      "listen: {tcp: 127.0.0.1:9, certificate_names: [a.example, spiffe://x/y read]}\n"
      "tls: {cert_file: /c, key_file: /k, client_ca_file: /a, admin_certificate_names: [op]}\n",
      "kv.yaml");
  INFO(absl::StrJoin(good.errors, "\n"));
  REQUIRE(good.config.has_value());
  CHECK(good.config->listen.access.certificate_names ==
        std::vector<std::string>{"a.example", "spiffe://x/y read"});
  CHECK(absl::StrContains(
      ErrorsOf(
          "listen: {tcp: 127.0.0.1:9, certificate_names: [a.example]}\n"
          "tls: {cert_file: /c, key_file: /k, client_ca_file: /a}\n"
          "tenants: [{name: a, unix: /a, g2_share: 50%, certificate_names: [A.example read]}]"),
      "'A.example' is also in listen.certificate_names"));
  for (const char* bad : {"[a.example reads]", "[a.example read write]", "[' read']", "[a, a]",
                          "[\"a\\\"b\"]", "['*.example']", "a.example", "[[a]]", "[a: b]"}) {
    INFO(bad);
    CHECK(absl::StrContains(ErrorsOf(absl::StrCat("listen: {certificate_names: ", bad, "}")),
                            "listen.certificate_names: "));
  }
  CHECK(absl::StrContains(ErrorsOf("tls: {admin_certificate_names: [op read]}"),
                          "is more than a name"));
}

}  // namespace kvkeep
