// Access over TCP: TLS, certificates, tokens, grants, admin calls, and the errors of refused
// clients. Certificates are made here; everything is on loopback.
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <google/protobuf/descriptor.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>

#include "tests/e2e/engine.h"
#include "tests/e2e/shell.h"
#include "tests/fakes/pki.h"

namespace kvkeep::e2e {
namespace {

using client::SecurityOptions;

const std::string kTokenA = "token-of-tenant-a-000001", kTokenB = "token-of-tenant-b-000001";

std::string HashLine(const std::string& token, const std::string& grant = "") {
  std::array<unsigned char, 32> sha{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), sha.data());
  return absl::StrCat(
      absl::BytesToHexString({reinterpret_cast<const char*>(sha.data()), sha.size()}), " ", grant,
      "\n");
}

void WriteSecret(const std::string& path, const std::string& text) {
  WriteFile(path + ".new", text);
  REQUIRE(chmod((path + ".new").c_str(), 0600) == 0);
  REQUIRE(rename((path + ".new").c_str(), path.c_str()) == 0);
}

// A daemon with the tenants a and b on a TCP port, and a CA for both sides.
struct Secured {
  explicit Secured(const std::string& tls_more = "", bool client_certificates = true)
      : port(FreePort()),
        bulk(absl::StrCat("127.0.0.1:", FreePort())),
        site({.segment_bytes = "16MiB", .tcp = absl::StrCat("127.0.0.1:", port)}),
        ca(site.path(""), "ca"),
        other_ca(site.path(""), "other-ca") {
    Issue(1);
    WriteSecret(site.path("tokens-a"), HashLine(kTokenA));
    WriteSecret(site.path("tokens-b"), HashLine(kTokenB));
    site.settings.access = absl::StrCat("  bulk_tcp: ", bulk, "\n");
    site.settings.extra = absl::StrCat(
        "tls:\n  cert_file: ", site.path("daemon.pem"), "\n  key_file: ", site.path("daemon.key"),
        "\n", client_certificates ? absl::StrCat("  client_ca_file: ", ca.cert_file(), "\n") : "",
        tls_more, "tenants:\n", Tenant("a", client_certificates), Tenant("b", client_certificates));
  }
  std::string Tenant(const std::string& name, bool names) const {
    return absl::StrCat("  - name: ", name, "\n    unix: ", site.path(name + ".sock"),
                        "\n    g2_share: 25%\n    token_file: ", site.path("tokens-" + name), "\n",
                        names ? absl::StrCat("    certificate_names: [engine.", name,
                                             ".example, reader.", name, ".example read]\n")
                              : "");
  }
  void Issue(long serial, const std::string& alt_names = "DNS:localhost,IP:127.0.0.1") {
    ca.Issue({.name = "daemon", .alt_names = alt_names, .serial = serial});
  }

  // Has the daemon look at the CA's list of revoked certificates, which has none yet.
  void CheckRevocations() {
    ca.Revoke({});
    site.settings.extra = absl::StrReplaceAll(
        site.settings.extra,
        {{"tls:\n", absl::StrCat("tls:\n  client_crl_file: ", site.path("ca.crl"), "\n")}});
  }

  std::string endpoint() const { return site.settings.tcp; }
  // Connects with a certificate for this name, signed by the daemon's CA.
  SecurityOptions As(const std::string& name, long serial = 1) const {
    const CertificateFiles files =
        ca.Issue({.name = name, .alt_names = "DNS:" + name, .serial = serial});
    return {.ca_file = ca.cert_file(), .cert_file = files.cert, .key_file = files.key};
  }
  Engine Connect(const SecurityOptions& security) const {
    return Engine(endpoint(), {.name = "tcp", .security = security});
  }
  // Connects a client whose gets and puts go by the bulk door.
  Engine ConnectBulk(const SecurityOptions& security) const {
    return Engine(endpoint(), {.name = "bulk", .security = security, .bulk = bulk});
  }
  // Returns why a client with these is refused; empty if it is not.
  std::string WhyNot(const SecurityOptions& security) const {
    auto connected = client::Client::Connect({.endpoint = endpoint(),
                                              .client_name = "refused",
                                              .default_deadline = milliseconds(20'000),
                                              .security = security});
    if (!connected.ok()) return connected.status().ToString();
    return (*connected)->GetServerInfo().status().ToString();
  }
  // Returns the serial number of the certificate that a new connection gets.
  std::string Serial() const {
    const Outcome shown =
        RunShell(absl::StrCat("openssl s_client -connect ", endpoint(), " -CAfile ", ca.cert_file(),
                              " </dev/null | openssl x509 -noout -serial"));
    for (const absl::string_view line : absl::StrSplit(shown.output, '\n')) {
      if (absl::StartsWith(line, "serial=")) return std::string(line);
    }
    return shown.output;
  }

  const int port;
  const std::string bulk;  // its bulk door
  Site site;
  TestCa ca, other_ca;
};

}  // namespace

TEST_CASE("only TLS 1.3 with a certificate of the right CA comes in; the others are told why") {
  Secured secured;
  secured.site.Start();
  CHECK(secured.WhyNot(secured.As("engine.a.example")) == "OK");

  INFO(secured.endpoint());
  const std::string plaintext = secured.WhyNot({});
  CHECK(absl::StrContains(plaintext, "UNAVAILABLE"));

  const std::string probe = absl::StrCat(
      "openssl s_client -connect ", secured.endpoint(), " -CAfile ", secured.ca.cert_file(),
      " -cert ", secured.site.path("engine.a.example.pem"), " -key ",
      secured.site.path("engine.a.example.key"), " -alpn h2 -verify_return_error </dev/null");
  const Outcome tls13 = RunShell(probe + " -tls1_3");
  INFO(tls13.output);
  CHECK(absl::StrContains(tls13.output, "New, TLSv1.3"));
  CHECK(absl::StrContains(tls13.output, "Verify return code: 0 (ok)"));
  const Outcome tls12 = RunShell(probe + " -tls1_2");
  INFO(tls12.output);
  CHECK(tls12.status != 0);
  CHECK_FALSE(absl::StrContains(tls12.output, "BEGIN CERTIFICATE"));

  SecurityOptions security = secured.As("engine.a.example");
  security.ca_file = secured.other_ca.cert_file();
  CHECK(absl::StrContains(secured.WhyNot(security), "the daemon's certificate is not signed by"));

  CHECK(absl::StrContains(secured.WhyNot({.ca_file = secured.ca.cert_file()}),
                          "the daemon wants a client certificate signed by CN=ca"));

  const CertificateFiles foreign =
      secured.other_ca.Issue({.name = "foreign", .alt_names = "DNS:engine.a.example"});
  CHECK(absl::StrContains(
      secured.WhyNot(
          {.ca_file = secured.ca.cert_file(), .cert_file = foreign.cert, .key_file = foreign.key}),
      "is signed by CN=other-ca, the daemon wants one signed by CN=ca"));

  const CertificateFiles expired =
      secured.ca.Issue({.name = "expired", .alt_names = "DNS:engine.a.example", .valid_to_s = -60});
  CHECK(absl::StrContains(
      secured.WhyNot(
          {.ca_file = secured.ca.cert_file(), .cert_file = expired.cert, .key_file = expired.key}),
      "expired.pem has expired"));
  CHECK(secured.site.Status().sessions_size() == 0);
}

TEST_CASE("a client does not talk to a daemon with another name or an expired certificate") {
  Secured secured;
  secured.Issue(1, "DNS:kvkeep.node7.example");
  secured.site.Start();
  SecurityOptions security = secured.As("engine.a.example");
  CHECK(absl::StrContains(secured.WhyNot(security),
                          "is not for 127.0.0.1; its DNS names are [kvkeep.node7.example]"));
  security.server_name = "kvkeep.node7.example";
  CHECK(secured.WhyNot(security) == "OK");

  REQUIRE(secured.site.Stop().exit_status == 0);
  secured.ca.Issue({.name = "daemon", .alt_names = "IP:127.0.0.1", .valid_to_s = -60});
  secured.site.Start();
  CHECK(absl::StrContains(secured.site.Log(), "the TLS certificate has expired"));
  CHECK(absl::StrContains(secured.WhyNot(secured.As("engine.a.example")),
                          "the daemon's certificate has expired"));
}

TEST_CASE("the other side's speaking no TLS is told as that") {
  Site site({.tcp = absl::StrCat("127.0.0.1:", FreePort())});
  site.Start();
  const TestCa ca(site.path(""), "ca");
  const auto connected = client::Client::Connect({.endpoint = site.settings.tcp,
                                                  .client_name = "t",
                                                  .default_deadline = milliseconds(20'000),
                                                  .security = {.ca_file = ca.cert_file()}});
  REQUIRE(connected.ok());
  const std::string why = (*connected)->GetServerInfo().status().ToString();
  INFO(why);
  CHECK(absl::StrContains(why, "does not speak TLS"));
}

TEST_CASE("over TCP a tenant is known by certificate or token, and finds its own chunks only") {
  Secured secured;
  secured.site.Start();
  const TestChunk chunk{.number = 1, .bytes = 100'000};
  SecurityOptions by_token = secured.As("nobody.example");
  CHECK(
      absl::StrContains(secured.WhyNot(by_token), "no tenant has any of the certificate's names"));
  CHECK(secured.site.Counter("unauthenticated_calls") > 0);
  CHECK(secured.site.AwaitLog("call refused"));

  by_token.token = kTokenA;
  Engine a = secured.Connect(by_token);
  Engine same_a = secured.Connect(secured.As("engine.a.example"));
  Engine b = secured.Connect(secured.As("engine.b.example"));
  CHECK(a.Put(chunk).status == client::PutStatus::kStored);
  CHECK(a.Get(chunk) == client::GetStatus::kHit);
  CHECK(same_a.Get(chunk) == client::GetStatus::kHit);
  CHECK(b.Get(chunk) == client::GetStatus::kMiss);
  CHECK(b.Find({chunk}).any == 0);
  // The tenant is that of its Unix socket, and not the default one.
  Engine local("unix://" + secured.site.path("a.sock"), Engine::Options());
  CHECK(local.Get(chunk) == client::GetStatus::kHit);
  Engine standard(secured.site);
  CHECK(standard.Get(chunk) == client::GetStatus::kMiss);
  CHECK(b.Put(chunk).status == client::PutStatus::kStored);  // not PRESENT

  by_token = secured.As("engine.b.example");
  by_token.token = kTokenA;
  CHECK(absl::StrContains(secured.WhyNot(by_token), "one tenant's, the token another's"));
  by_token.token = "a-token-that-nobody-knows";
  CHECK(absl::StrContains(secured.WhyNot(by_token), "the token is not known here"));
  bool seen = false;
  const v1::StatusResponse status = secured.site.Status();
  for (const auto& session : status.sessions()) {
    seen = seen || absl::StrContains(session.peer(), "certificate engine.b.example");
    CHECK_FALSE(absl::StrContains(session.peer(), kTokenA));
  }
  CHECK(seen);
  CHECK_FALSE(absl::StrContains(secured.site.Log(), kTokenA));
  CHECK(a.wrong_bytes + b.wrong_bytes == 0);
}

TEST_CASE("the bulk door knows a tenant as gRPC does, over TLS, and takes back what gRPC does") {
  Secured secured;
  secured.CheckRevocations();
  secured.site.Start();
  const TestChunk chunk{.number = 1, .bytes = 3'000'000};
  Engine revoked = secured.ConnectBulk(secured.As("engine.a.example", 71));
  SecurityOptions by_token = secured.As("nobody.example");
  by_token.token = kTokenA;
  Engine a = secured.ConnectBulk(by_token);
  Engine b = secured.ConnectBulk(secured.As("engine.b.example"));
  CHECK(a.Put(chunk).status == client::PutStatus::kStored);
  CHECK(revoked.Get(chunk) == client::GetStatus::kHit);
  CHECK(a.Get(chunk) == client::GetStatus::kHit);
  CHECK(b.Get(chunk) == client::GetStatus::kMiss);
  for (Engine* engine : {&a, &b, &revoked}) CHECK(engine->client().GetStats().bulk_fallbacks == 0);
  CHECK(secured.site.Counter("bulk_connections") == 3);

  secured.ca.Revoke({71});
  WriteSecret(secured.site.path("tokens-a"), HashLine("another-token-of-tenant-a"));
  REQUIRE(Eventually([&] { return secured.site.Counter("credential_reloads") == 2; }));
  for (Engine* engine : {&a, &revoked}) {
    CHECK(engine->Get(chunk) != client::GetStatus::kHit);
    CHECK(absl::IsUnauthenticated(engine->error));
    CHECK(engine->Put({.number = 2, .bytes = 10}).status == client::PutStatus::kUnfinished);
    CHECK(absl::IsUnauthenticated(engine->error));
  }
  CHECK(b.Put(chunk).status == client::PutStatus::kStored);
  CHECK(a.wrong_bytes + b.wrong_bytes + revoked.wrong_bytes == 0);
}

TEST_CASE("the bulk door's TLS takes no stranger, and the client no other daemon") {
  Secured secured;
  secured.site.Start();
  const std::string probe = absl::StrCat("openssl s_client -connect ", secured.bulk, " -CAfile ",
                                         secured.ca.cert_file(), " </dev/null 2>&1");
  const SecurityOptions known = secured.As("engine.a.example");
  const std::string with_certificate =
      absl::StrCat(" -cert ", known.cert_file, " -key ", known.key_file);
  const auto probed = [&](const std::string& more) {
    return RunShell(absl::StrReplaceAll(probe, {{" </dev", more + " </dev"}})).output;
  };
  CHECK(absl::StrContains(probed(with_certificate + " -alpn kvkeep-bulk/1 -tls1_3"),
                          "ALPN protocol: kvkeep-bulk/1"));
  CHECK(absl::StrContains(probed(with_certificate + " -alpn h2"), "no application protocol"));
  CHECK_FALSE(absl::StrContains(probed(with_certificate + " -tls1_2"), "Cipher is TLS"));
  const CertificateFiles strange =
      secured.other_ca.Issue({.name = "x", .alt_names = "DNS:engine.a.example"});
  const std::string shown = absl::StrCat(" -cert ", strange.cert, " -key ", strange.key);
  CHECK(absl::StrContains(probed(shown + " -alpn kvkeep-bulk/1 -ign_eof"), "alert"));

  // The daemon is not who the client wants: no byte of a chunk goes there, but gRPC's to the one
  // that it knows.
  SecurityOptions elsewhere = known;
  elsewhere.server_name = "localhost";
  Engine fine = secured.ConnectBulk(elsewhere);
  const TestChunk chunk{.number = 1, .bytes = 100'000};
  CHECK(fine.Put(chunk).status == client::PutStatus::kStored);
  CHECK(fine.client().GetStats().bulk_fallbacks == 0);
  Site impostor({.tcp = absl::StrCat("127.0.0.1:", FreePort())});
  const std::string other_door = absl::StrCat("127.0.0.1:", FreePort());
  impostor.settings.access = absl::StrCat("  bulk_tcp: ", other_door, "\n");
  impostor.Start();
  Engine wary(secured.endpoint(), {.name = "wary", .security = known, .bulk = other_door});
  CHECK(wary.Get(chunk) == client::GetStatus::kHit);
  CHECK(wary.client().GetStats().bulk_fallbacks == 1);
  CHECK(impostor.Counter("get_streams") == 0);
}

TEST_CASE("a client whose certificate is revoked is refused from then on, others are not") {
  Secured secured;
  secured.CheckRevocations();
  secured.site.Start();
  const TestChunk chunk{.number = 1, .bytes = 1000};
  Engine revoked = secured.Connect(secured.As("engine.a.example", 71));
  Engine other = secured.Connect(secured.As("engine.b.example"));
  CHECK(revoked.Put(chunk).status == client::PutStatus::kStored);
  secured.ca.Revoke({71});
  REQUIRE(Eventually([&] { return secured.site.Counter("credential_reloads") == 1; }));
  CHECK(revoked.Find({chunk}).any == 0);
  CHECK(absl::IsUnauthenticated(revoked.error));
  CHECK(absl::StrContains(revoked.error.message(), "certificate revoked"));
  CHECK(other.Put(chunk).status == client::PutStatus::kStored);
  CHECK(other.Get(chunk) == client::GetStatus::kHit);
}

TEST_CASE("a token that is taken back is refused from the next call on, its successor is not") {
  Secured secured("", /*client_certificates=*/false);
  secured.site.Start();
  const TestChunk chunk{.number = 1, .bytes = 1000};
  const std::string file = secured.site.path("client-token");
  WriteFile(file, kTokenA + "\n");
  const SecurityOptions security{.ca_file = secured.ca.cert_file(), .token_file = file};
  Engine engine = secured.Connect(security);
  CHECK(engine.Put(chunk).status == client::PutStatus::kStored);
  CHECK(
      absl::StrContains(secured.WhyNot({.ca_file = secured.ca.cert_file()}), "identify yourself"));

  const std::string next = "token-of-tenant-a-000002";
  WriteSecret(secured.site.path("tokens-a"), HashLine(next));
  REQUIRE(Eventually([&] { return secured.site.Counter("credential_reloads") == 1; }));
  CHECK(engine.Find({chunk}).any == 0);
  CHECK(absl::IsUnauthenticated(engine.error));
  CHECK(engine.Get(chunk) != client::GetStatus::kHit);
  CHECK(engine.Put({.number = 2, .bytes = 1000}).status != client::PutStatus::kStored);
  WriteFile(file, next + "\n");
  Engine again = secured.Connect(security);
  CHECK(again.Get(chunk) == client::GetStatus::kHit);

  WriteSecret(secured.site.path("tokens-a"), "no hash\n");
  REQUIRE(secured.site.AwaitLog("changed credentials cannot be used"));
  CHECK(secured.site.Counter("credential_reload_failures") == 1);
  CHECK(again.Get(chunk) == client::GetStatus::kHit);
}

TEST_CASE(
    "a new certificate is shown to new connections, old ones go on, a broken one changes nothing") {
  Secured secured;
  secured.Issue(0x1111);
  secured.site.Start();
  CHECK(secured.Serial() == "serial=1111");
  const TestChunk chunk{.number = 1, .bytes = 1000};
  Engine engine = secured.Connect(secured.As("engine.a.example"));
  CHECK(engine.Put(chunk).status == client::PutStatus::kStored);

  secured.Issue(0x2222);
  CHECK(Eventually([&] { return secured.Serial() == "serial=2222"; }));
  CHECK(secured.site.AwaitLog("serial=2222"));
  CHECK(engine.Get(chunk) == client::GetStatus::kHit);

  WriteFile(secured.site.path("daemon.pem"), "no certificate");
  REQUIRE(secured.site.AwaitLog("changed credentials cannot be used"));
  CHECK(absl::StrContains(secured.site.Log(), "daemon.pem: has no certificate"));
  CHECK(secured.Serial() == "serial=2222");
  CHECK(engine.Get(chunk) == client::GetStatus::kHit);
  CHECK(engine.client().GetStats().sessions_opened == 1);
  CHECK(secured.WhyNot({}) != "OK");  // above all, not in plaintext

  secured.Issue(0x3333);
  CHECK(Eventually([&] { return secured.Serial() == "serial=3333"; }));
}

TEST_CASE("another CA for clients: the old one's come in no more, the new one's do") {
  Secured secured;
  const std::string file = secured.site.path("client-ca.pem");
  WriteFile(file, ReadFile(secured.ca.cert_file()));
  secured.site.settings.extra = absl::StrReplaceAll(
      secured.site.settings.extra, {{"client_ca_file: " + secured.ca.cert_file(),  //
                                     "client_ca_file: " + file}});
  secured.site.Start();
  const auto by = [&](const TestCa& ca) {
    const CertificateFiles files =
        ca.Issue({.name = "engine", .alt_names = "DNS:engine.a.example"});
    return SecurityOptions{
        .ca_file = secured.ca.cert_file(), .cert_file = files.cert, .key_file = files.key};
  };
  const TestChunk chunk{.number = 1, .bytes = 1000};
  Engine engine = secured.Connect(by(secured.ca));
  CHECK(engine.Put(chunk).status == client::PutStatus::kStored);
  CHECK(absl::StrContains(secured.WhyNot(by(secured.other_ca)), "is signed by CN=other-ca"));

  WriteFile(file + ".new", ReadFile(secured.other_ca.cert_file()));
  REQUIRE(rename((file + ".new").c_str(), file.c_str()) == 0);
  REQUIRE(Eventually([&] { return secured.site.Counter("credential_reloads") == 1; }));
  CHECK(secured.WhyNot(by(secured.other_ca)) == "OK");
  CHECK(absl::StrContains(secured.WhyNot(by(secured.ca)),
                          "is signed by CN=ca, the daemon wants one signed by CN=other-ca"));
  // A connected client loses access with the old CA: every call checks the certificate.
  CHECK(engine.Get(chunk) != client::GetStatus::kHit);
  CHECK(secured.Connect(by(secured.other_ca)).Get(chunk) == client::GetStatus::kHit);

  WriteFile(file, "no certificate");
  REQUIRE(secured.site.AwaitLog("changed credentials cannot be used"));
  CHECK(secured.WhyNot(by(secured.other_ca)) == "OK");
  CHECK(secured.WhyNot(by(secured.ca)) != "OK");
  CHECK(secured.WhyNot({.ca_file = secured.ca.cert_file()}) != "OK");
}

TEST_CASE("a grant to read does not write, a grant to write does not read") {
  Secured secured("", /*client_certificates=*/false);
  const std::string reads = "token-that-may-read-only", writes = "token-that-may-write-only";
  WriteSecret(secured.site.path("tokens-a"),
              HashLine(kTokenA) + HashLine(reads, "read") + HashLine(writes, "write"));
  secured.site.Start();
  const auto as = [&](const std::string& token) {
    return secured.Connect({.ca_file = secured.ca.cert_file(), .token = token});
  };
  Engine both = as(kTokenA), reader = as(reads), writer = as(writes);
  const TestChunk chunk{.number = 1, .bytes = 1000}, more{.number = 2, .bytes = 1000};

  CHECK(writer.Put(chunk).status == client::PutStatus::kStored);
  CHECK(writer.Get(chunk) != client::GetStatus::kHit);
  CHECK(absl::IsPermissionDenied(writer.error));
  writer.error = absl::OkStatus();
  CHECK(writer.Find({chunk}).any == 0);
  CHECK(absl::IsPermissionDenied(writer.error));

  CHECK(reader.Get(chunk) == client::GetStatus::kHit);
  CHECK(reader.Find({chunk}).any == 1);
  CHECK(reader.Put(more).status != client::PutStatus::kStored);
  CHECK(absl::IsPermissionDenied(reader.error));
  const std::vector<ChunkKey> keys = KeysOf({chunk});
  CHECK(absl::IsPermissionDenied(reader.client().Delete(reader.ns(), keys).status()));
  CHECK(both.Get(more) == client::GetStatus::kMiss);
  CHECK(secured.site.Counter("denied_calls") == 4);
  CHECK(writer.client().Delete(writer.ns(), keys).ok());
  CHECK(both.Get(chunk) == client::GetStatus::kMiss);
}

TEST_CASE("a Unix socket's grant holds on both paths") {
  Site site({.local = true, .access = "  socket_grant: read\n"});
  site.Start();
  for (const char* name : {"local", "grpc"}) {
    INFO(name);
    Engine engine(site, {.name = name,
                         .path = name == std::string("local") ? client::PathChoice::kLocal
                                                              : client::PathChoice::kGrpc});
    CHECK(engine.Put({.number = 1, .bytes = 1000}).status != client::PutStatus::kStored);
    CHECK(absl::IsPermissionDenied(engine.error));
    CHECK(engine.Get({.number = 1, .bytes = 1000}) == client::GetStatus::kMiss);
  }
}

TEST_CASE(
    "admin calls over TCP are for certificates named for it, and every one is in the audit log") {
  Secured secured("  admin_certificate_names: [operator.example]\n");
  secured.site.Start();
  const milliseconds patience(10'000);
  client::AdminClient admin(secured.endpoint(), patience, secured.As("operator.example"));
  REQUIRE(admin.Status().ok());
  REQUIRE(admin.Clear(nullptr).ok());
  REQUIRE(secured.site.admin()->Clear(nullptr).ok());
  client::AdminClient engine(secured.endpoint(), patience, secured.As("engine.a.example"));
  CHECK(absl::IsPermissionDenied(engine.Clear(nullptr).status()));
  CHECK(absl::IsPermissionDenied(engine.Status().status()));
  client::AdminClient stranger(secured.endpoint(), patience, {.ca_file = secured.ca.cert_file()});
  CHECK(absl::StrContains(stranger.Status().status().message(), "wants a client certificate"));
  // Being an operator makes no peer a tenant.
  CHECK(absl::StrContains(secured.WhyNot(secured.As("operator.example")), "no tenant has any"));
  CHECK(secured.site.Counter("denied_admin_calls") == 2);

  const std::string log = secured.site.Log();
  INFO(log);
  CHECK(absl::StrContains(
      log,
      "msg=audit call=Clear who=\"certificate operator.example\" what=\"all namespaces\" "
      "outcome=\"OK, chunks=0\""));
  CHECK(absl::StrContains(log, absl::StrCat("msg=audit call=Clear who=\"pid=", getpid(),
                                            " uid=", geteuid(), " gid=", getegid(), "\"")));
  CHECK(absl::StrContains(log, "call=Clear who=ipv4:127.0.0.1:"));
  CHECK(absl::StrContains(log, "outcome=\"PERMISSION_DENIED: admin calls"));
  CHECK(absl::StrContains(log, "msg=audit call=Status who=\"certificate operator.example\""));
}

TEST_CASE("of every admin call that there is a line is in the audit log, with who made it") {
  Site site;
  site.Start();
  Engine engine(site);
  REQUIRE(engine.PutAll(Chunks(1, 2, 100'000)));
  client::AdminClient& admin = *site.admin();
  CHECK(admin.Status().ok());
  CHECK(admin.ShowConfig().ok());
  CHECK(admin.ListNamespaces().ok());
  CHECK(admin.ShowReuse().ok());
  v1::EvictRequest evict;
  evict.set_bytes(1);
  CHECK(admin.Evict(evict).ok());
  CHECK(admin.Verify({}).ok());
  CHECK(admin.Clear(nullptr).ok());
  CHECK(admin.ReloadConfig().ok());
  CHECK(admin.Drain(milliseconds(0)).ok());  // last, as it puts nothing from now on
  const auto* service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("kvkeep.v1.Admin");
  REQUIRE(service != nullptr);
  CHECK(service->method_count() == 9);  // one more to be called here
  const std::string who =
      absl::StrCat("who=\"pid=", getpid(), " uid=", geteuid(), " gid=", getegid(), "\"");
  for (int i = 0; i < service->method_count(); ++i) {
    CHECK(site.AwaitLog(absl::StrCat("msg=audit call=", service->method(i)->name(), " ", who)));
  }
}

TEST_CASE(
    "without names for it TCP has no admin calls; the log's level does not silence the audit") {
  Secured secured;
  absl::StrAppend(&secured.site.settings.extra, "log: {level: error}\n");
  secured.site.Start();
  client::AdminClient admin(secured.endpoint(), milliseconds(10'000),
                            secured.As("engine.a.example"));
  CHECK(absl::IsUnimplemented(admin.Clear(nullptr).status()));
  REQUIRE(secured.site.admin()->Clear(nullptr).ok());
  CHECK(absl::StrContains(secured.site.Log(), "msg=audit call=Clear"));
  CHECK_FALSE(absl::StrContains(secured.site.Log(), "msg=serving"));
}

TEST_CASE("the command line tool speaks TLS, by flags or environment") {
  Secured secured;
  secured.site.Start();
  const SecurityOptions security = secured.As("engine.a.example");
  const std::string tool =
      absl::StrCat("'" KVKEEP_PATH "' --endpoint ", secured.endpoint(), " ping");
  const Outcome flags = RunShell(absl::StrCat(tool, " --cacert ", security.ca_file, " --cert ",
                                              security.cert_file, " --key ", security.key_file));
  INFO(flags.output);
  CHECK(flags.status == 0);
  const Outcome environment =
      RunShell(absl::StrCat("KVKEEP_CACERT=", security.ca_file, " KVKEEP_CERT=", security.cert_file,
                            " KVKEEP_KEY=", security.key_file, " ", tool));
  INFO(environment.output);
  CHECK(environment.status == 0);
  const Outcome none = RunShell(absl::StrCat(tool, " --cacert ", security.ca_file));
  CHECK(none.status == 4);
  CHECK(absl::StrContains(none.output, "set cert_file and key_file"));
  const Outcome wrong = RunShell(absl::StrCat(tool, " --cacert ", security.key_file));
  CHECK(absl::StrContains(wrong.output, "ca_file: "));
  WriteFile(secured.site.path("token"), kTokenB);
  const Outcome token = RunShell(absl::StrCat(tool, " --cacert ", security.ca_file, " --cert ",
                                              security.cert_file, " --key ", security.key_file,
                                              " --token-file ", secured.site.path("token")));
  CHECK(absl::StrContains(token.output, "one tenant's, the token another's"));
}

}  // namespace kvkeep::e2e
