// Example: put one prefix of four chunks into the daemon and get it back.
//   kvkeep_example unix:///run/kvkeep/kvkeep.sock
#include <cstdio>
#include <cstring>

#include "client/client.h"
#include "client/payload_malloc.h"

using kvkeep::ChunkKey;
using kvkeep::client::Client;
using kvkeep::client::GetStatus;
using kvkeep::client::LeaseMode;
using kvkeep::client::PutChunk;
using kvkeep::client::PutOutcome;

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: kvkeep_example ENDPOINT\n"), 2;
  kvkeep::client::TuneMallocForPayloads();
  auto client = Client::Connect({.endpoint = argv[1], .client_name = "example"});
  if (!client.ok()) return std::fprintf(stderr, "%s\n", client.status().ToString().c_str()), 1;
  auto ns = (*client)->OpenNamespace({.model = "example", .tokens_per_chunk = 256});
  if (!ns.ok()) return std::fprintf(stderr, "%s\n", ns.status().ToString().c_str()), 1;

  // An engine's keys are digests that cover the whole prefix; here they are just numbered.
  std::vector<ChunkKey> keys(4);
  std::vector<std::vector<std::byte>> kv(4, std::vector<std::byte>(3 << 20));
  std::vector<PutChunk> chunks(4);
  for (size_t i = 0; i < 4; ++i) {
    keys[i] = *ChunkKey::FromBytes(absl::StrCat("example prefix, chunk ", i));
    std::memset(kv[i].data(), static_cast<int>(i + 1), kv[i].size());
    chunks[i] = {.key = keys[i], .runs = {kv[i]}};
    if (i > 0) chunks[i].parent_key = keys[i - 1];
  }
  auto put = (*client)->Put(*ns, chunks);
  if (!put.ok()) return std::fprintf(stderr, "put: %s\n", put.status().ToString().c_str()), 1;
  for (const PutOutcome& outcome : put->chunks) {
    std::printf("put: %s %s\n", PutStatusName(outcome.status).data(), outcome.message.c_str());
  }

  auto found = (*client)->Lookup(*ns, keys, {.lease = LeaseMode::kLeadingRun});
  if (!found.ok())
    return std::fprintf(stderr, "lookup: %s\n", found.status().ToString().c_str()), 1;
  std::printf("leading run: %u keys, %u leased\n", found->leading_keys, found->leased_keys);
  if (found->leased_keys == 0) return 1;

  std::vector<std::vector<std::byte>> back(found->leased_keys, std::vector<std::byte>(3 << 20));
  std::vector<std::span<std::byte>> to(back.begin(), back.end());
  auto got = (*client)->Get(*ns, absl::MakeSpan(keys).subspan(0, found->leased_keys),
                            {.lease = &found->lease, .destinations = to});
  if (!got.ok()) return std::fprintf(stderr, "get: %s\n", got.status().ToString().c_str()), 1;
  bool same = true;
  for (size_t i = 0; i < back.size(); ++i) {
    same &= got->chunks[i].status == GetStatus::kHit && back[i] == kv[i];
  }
  std::printf("got %zu chunks back: %s\n", back.size(), same ? "the same bytes" : "NOT the same");
  return same ? 0 : 1;
}
