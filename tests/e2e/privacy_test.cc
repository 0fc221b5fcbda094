// Cached data, its names and its keys are for their owner: they are not in the log at any level,
// the daemon's status or metrics, nor a core file.
#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/e2e/engine.h"
#include "tests/fakes/pki.h"
#include "tiers/crypt/key_ring.h"

namespace kvkeep::e2e {
namespace {

constexpr char kPayloadMark[] = "private payload, seen nowhere; ";
constexpr char kKeyMark[] = "private key of a prompt ";
constexpr char kPrivateTail[] = "private metadata of a chunk";
constexpr char kMaster[] = "the master key, all 32 bytes of it";  // its first 32
constexpr char kToken[] = "a-bearer-token-of-the-default-tenant",
               kWrongToken[] = "nobody-s-token-0001";
constexpr size_t kBytes = 300'000;
constexpr client::Deadline kPrivacyPatience{60'000};  // with a busy machine

ChunkKey PrivateKey(int number) {
  return *ChunkKey::FromBytes(absl::StrCat(kKeyMark, absl::Dec(number, absl::kZeroPad8)));
}

// Distinct marks throughout each chunk.
std::string PrivatePayload(int number) {
  std::string payload = absl::StrCat(number, ": ");
  while (payload.size() < kBytes) payload += kPayloadMark;
  payload.resize(kBytes);
  return payload;
}

// Ways to write bytes down: raw, hexadecimal, base64 at each of its three offsets.
std::vector<std::string> Spellings(const std::string& bytes) {
  std::vector<std::string> all = {bytes, absl::BytesToHexString(bytes)};
  all.push_back(absl::AsciiStrToUpper(all[1]));
  for (size_t skip = 0; skip < 3; ++skip) {
    const std::string whole = bytes.substr(skip, (bytes.size() - skip) / 3 * 3);
    all.push_back(absl::Base64Escape(whole));
  }
  return all;
}

// Returns the form of a secret that is in `text`; empty: none.
std::string FindLeak(const std::string& text, const std::vector<std::string>& secrets) {
  for (const std::string& secret : secrets) {
    for (const std::string& spelling : Spellings(secret)) {
      if (absl::StrContains(text, spelling)) return spelling;
    }
  }
  return "";
}

// Puts, a lookup with a lease, a refused call, a delete, by either path. Returns the client, whose
// session is open.
std::unique_ptr<client::Client> Work(const client::ClientOptions& options) {
  auto client = client::Client::Connect(options);
  REQUIRE(client.ok());
  const auto ns = (*client)->OpenNamespace({.model = "m", .tokens_per_chunk = 16});
  REQUIRE(ns.ok());
  const int base = options.path == client::PathChoice::kLocal ? 100 : 200;
  std::vector<ChunkKey> keys;
  for (int i = 0; i < 8; ++i) {
    const std::string payload = PrivatePayload(base + i);
    keys.push_back(PrivateKey(base + i));
    std::vector<client::PutChunk> puts(1);
    puts[0] = {.key = keys.back(), .runs = {std::as_bytes(std::span(payload))}};
    puts[0].metadata = kPrivateTail;
    const auto put = (*client)->Put(*ns, std::move(puts), {.durable = i % 2 == 0});
    REQUIRE(put.ok());
    CHECK(put->chunks[0].status != client::PutStatus::kRejected);
  }
  const auto found = (*client)->Lookup(*ns, keys, {.lease = client::LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  CHECK(found->leading_keys == keys.size());
  const auto wrong = (*client)->Lookup(*ns, {}, {});
  CHECK_FALSE(wrong.ok());
  CHECK((*client)->Delete(*ns, absl::MakeSpan(keys).subspan(6)).ok());
  return *std::move(client);
}

std::unique_ptr<client::Client> Work(const Site& site, client::PathChoice path) {
  return Work({.endpoint = site.endpoint(),
               .client_name = "secretive",
               .default_deadline = kPrivacyPatience,
               .path = path});
}

// Encryption at rest, and TLS with a token over TCP.
class Keys {
 public:
  explicit Keys(Site* site) : site_(*site), ca_(site->path(""), "ca") {
    Write("master", std::string(kMaster, 32));
    std::array<unsigned char, 32> sha{};
    SHA256(reinterpret_cast<const unsigned char*>(kToken), sizeof(kToken) - 1, sha.data());
    hash_ = std::string(reinterpret_cast<const char*>(sha.data()), sha.size());
    Write("tokens", absl::BytesToHexString(hash_) + "\n");
    ca_.Issue({.name = "daemon", .alt_names = "DNS:localhost,IP:127.0.0.1"});
    site_.settings.tcp = absl::StrCat("127.0.0.1:", FreePort());
    site_.settings.access = absl::StrCat("  token_file: ", site_.path("tokens"), "\n");
    absl::StrAppend(&site_.settings.extra, "tls: {cert_file: ", site_.path("daemon.pem"),
                    ", key_file: ", site_.path("daemon.key"), "}\n",
                    "encryption: {master_key_file: ", site_.path("master"), "}\n");
  }
  client::ClientOptions ByTcp(const std::string& token) const {
    return {.endpoint = site_.settings.tcp,
            .client_name = "secretive",
            .default_deadline = kPrivacyPatience,
            .security = {.ca_file = ca_.cert_file(), .token = token}};
  }
  // Adds the secrets of a daemon that has started.
  void AddSecrets(std::vector<std::string>* secrets) const {
    const std::string master(kMaster, 32);
    const auto entries = KeyRing::ParseText(ReadFile(site_.path("state/keyring")));
    REQUIRE(entries.ok());
    Secret secret;
    std::memcpy(secret.writable().data(), master.data(), master.size());
    const auto ring = KeyRing::Unwrap(*entries, secret);
    REQUIRE(ring.ok());
    const DataKey* const data_key = (*ring)->ForTenant("");
    REQUIRE(data_key != nullptr);
    const Secret& bytes = data_key->secret;
    secrets->insert(secrets->end(),
                    {master, kToken, kWrongToken,
                     std::string(reinterpret_cast<const char*>(bytes.data()), Secret::kBytes)});
    // A line from the middle of the daemon's private key.
    const std::string pem = ReadFile(site_.path("daemon.key"));
    secrets->push_back(pem.substr(pem.find('\n') + 1, 48));
  }

 private:
  void Write(const std::string& name, const std::string& text) const {
    WriteFile(site_.path(name), text);
    REQUIRE(chmod(site_.path(name).c_str(), 0600) == 0);
  }
  Site& site_;
  const TestCa ca_;
  std::string hash_;
};

// Overwrites a part of every image on the device, so that reads find and log damage.
void DamageDevice(const Site& site) {
  const int fd = open(site.path("nvme0/data.000").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  std::string block(4096, '\0');
  size_t damaged = 0;
  for (off_t at = 0; pread(fd, block.data(), block.size(), at) == 4096; at += 4096) {
    if (!absl::StartsWith(block, "KVKIMAGE")) continue;
    damaged += pwrite(fd, "damage", 6, at + 4096 + 100) == 6;
  }
  close(fd);
  REQUIRE(damaged > 8);
}

std::vector<std::string> Secrets(const Site& site) {
  std::vector<std::string> secrets = {kPayloadMark, kKeyMark, kPrivateTail};
  const std::string identity = ReadFile(site.path("state/identity"));
  REQUIRE(identity.size() == 72);
  secrets.push_back(identity.substr(32, 32));  // the MAC key: store_identity.cc
  return secrets;
}

// Lets the next daemon write a core file into the site's directory.
std::function<void()> AllowCore(const Site& site) {
  return [dir = site.path("")] {
    const rlimit all{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_CORE, &all) != 0 || chdir(dir.c_str()) != 0) _exit(97);
  };
}

std::string CoreFileOf(const Site& site) {
  for (const auto& entry : std::filesystem::directory_iterator(site.path(""))) {
    if (absl::StartsWith(entry.path().filename().string(), "core")) return entry.path();
  }
  return "";
}

}  // namespace

TEST_CASE("the search finds what it is to find, however it is written") {
  const std::vector<std::string> secrets = {kPayloadMark, kKeyMark};
  CHECK(FindLeak("nothing here", secrets).empty());
  CHECK_FALSE(FindLeak(PrivatePayload(7).substr(50'001, 100), secrets).empty());
  CHECK_FALSE(FindLeak("chunk " + PrivateKey(7).ToHex() + " is corrupt", secrets).empty());
  const std::string key(PrivateKey(7).view());
  for (const char* before : {"", "x", "xx"}) {
    CHECK_FALSE(FindLeak(absl::Base64Escape(before + key), secrets).empty());
  }
}

TEST_CASE("no key, payload, metadata or secret is in the log, the metrics or the status") {
  const int port = FreePort();
  Site site({.g2 = "32MiB",
             .metrics = absl::StrCat("127.0.0.1:", port),
             .local = true,
             .extra = "log:\n  level: trace\n"});
  const Keys keys(&site);
  site.Start();
  std::vector<std::string> secrets = Secrets(site);
  keys.AddSecrets(&secrets);
  std::string told;
  const auto listen = [&] {
    const std::string metrics = HttpGet(port, "/metrics");
    CHECK(absl::StrContains(metrics, "kvkeep_"));
    CHECK(absl::StrContains(site.Log(), "level=info msg=serving"));
    absl::StrAppend(&told, metrics, site.Status().DebugString(), site.Log());
  };
  Work(site, client::PathChoice::kGrpc);
  Work(site, client::PathChoice::kLocal);
  const auto by_tcp = Work(keys.ByTcp(kToken));
  const auto refused = client::Client::Connect(keys.ByTcp(kWrongToken));
  CHECK((!refused.ok() || !(*refused)->GetServerInfo().ok()));
  CHECK(site.AwaitLog("call refused"));
  REQUIRE(site.AwaitClean());
  CHECK(site.Counter("write_backs_encrypted") > 8);
  listen();
  site.Kill();
  DamageDevice(site);
  site.Start();
  Work(site, client::PathChoice::kGrpc);  // existing chunks are read back to be answered PRESENT
  Engine engine(site, {.spec = {.model = "m", .tokens_per_chunk = 16}});
  for (int i = 0; i < 8; ++i) {
    const ChunkKey key = PrivateKey(100 + i);
    const auto prefetched = engine.client().Prefetch(engine.ns(), absl::MakeSpan(&key, 1));
    CHECK(prefetched.ok());
  }
  CHECK(Eventually([&] { return site.Counter("corrupt_chunks") > 0; }, milliseconds(60'000)));
  listen();
  const Ending end = site.Stop();
  CHECK(end.exit_status == 0);
  told += end.err;
  CHECK(FindLeak(told, secrets) == "");
}

TEST_CASE("a daemon that crashes leaves no core file; where it may, no block of a chunk is in it") {
  const std::string staged = PrivatePayload(0);
  for (const bool dumpable : {false, true}) {
    Site site({.g2 = "32MiB", .local = true, .dumpable = dumpable});
    site.before_exec = AllowCore(site);
    site.Start();
    // Alive during the crash, with a lease and with staging memory that the daemon has mapped.
    const auto client = Work(site, client::PathChoice::kLocal);
    auto staging = client->AllocateStaging(kBytes);
    REQUIRE(staging.ok());
    std::memcpy(staging->memory().data(), staged.data(), staged.size());
    const auto ns = client->OpenNamespace({.model = "m", .tokens_per_chunk = 16});
    std::vector<client::PutChunk> puts(1);
    puts[0] = {.key = PrivateKey(0), .runs = {staging->memory().first(staged.size())}};
    REQUIRE(client->Put(*ns, std::move(puts), {})->chunks[0].status == client::PutStatus::kStored);
    const std::vector<ChunkKey> keys = {PrivateKey(0), PrivateKey(100)};
    const auto leased = client->Lookup(*ns, keys, {.lease = client::LeaseMode::kLeadingRun});
    REQUIRE(leased.ok());
    CHECK(leased->leased_keys == 2);
    REQUIRE(site.AwaitClean());
    if (dumpable) {
      const std::string maps = ReadFile(absl::StrCat("/proc/", site.Status().pid(), "/maps"));
      CHECK(absl::StrContains(maps, "kvkeep-staging"));
    }
    CHECK(site.Status().sessions_size() == 1);
    site.Signal(SIGABRT);
    const Ending end = site.AwaitEnd();
    CHECK(end.signal == SIGABRT);
    const std::string core = CoreFileOf(site);
    CHECK(absl::StrContains(end.err, "KVKEEPD_DUMPABLE is set") == dumpable);
    if (!dumpable) {
      CHECK_FALSE(end.dumped_core);
      CHECK(core.empty());
    } else if (core.empty() || kSanitized) {
      WARN("skipped: this machine writes no core files where we look for them");
    } else {
      const std::string bytes = ReadFile(core);
      CHECK(absl::StrContains(bytes, "secretive"));  // the client's name: it is this daemon's
      // It is neither in G2 nor in the memory it was copied from; all payloads have it in the
      // middle.
      CHECK_FALSE(absl::StrContains(bytes, staged.substr(100, 4096)));
    }
  }
}

}  // namespace kvkeep::e2e
