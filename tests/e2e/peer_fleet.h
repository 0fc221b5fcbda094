// Nodes of a fleet that read from each other: real daemons, and mutual TLS on loopback.
#pragma once

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/g4_place.h"
#include "tests/fakes/pki.h"

namespace kvkeep::e2e {

inline constexpr size_t kPeerChunkBytes = 3'000'000;

inline std::string NameOfNode(size_t i) { return absl::StrCat("node-", i, ".example"); }

// Nodes with one key and one CA. Each knows all, by the addresses that `address` gives.
struct PeerFleet {
  explicit PeerFleet(size_t count, const std::string& more = "")
      : ca(dir.path(), "fleet-ca"), more(more) {
    WriteForOwner(dir / "key", FleetKeyOf('1'));
    for (size_t i = 0; i < count; ++i) {
      ports.push_back(FreePort());
      addresses.push_back(absl::StrCat("127.0.0.1:", ports[i]));
    }
    for (size_t i = 0; i < count; ++i) sites.push_back(MakeSite(i));
  }
  std::unique_ptr<Site> MakeSite(size_t i) {
    auto site = std::make_unique<Site>(Settings{.g2 = "128MiB",
                                                .segment_bytes = "16MiB",
                                                .devices = {{.capacity = "256MiB"}},
                                                .tcp = absl::StrCat("127.0.0.1:", ports[i]),
                                                .local = true});
    const CertificateFiles files =
        ca.Issue({.name = NameOfNode(i), .alt_names = "DNS:" + NameOfNode(i)});
    site->settings.access = "  certificate_names: [engine.example]\n  shared: true\n";
    Configure(*site, i, files);
    return site;
  }
  void Configure(Site& site, size_t i, const CertificateFiles& files) {
    std::string peers;
    for (size_t j = 0; j < addresses.size(); ++j) {
      absl::StrAppend(&peers, j > 0 ? ", " : "", NameOfNode(j), "=", addresses[j]);
    }
    site.settings.extra =
        absl::StrCat("tls: {cert_file: ", files.cert, ", key_file: ", files.key,
                     ", client_ca_file: ", ca.cert_file(), "}\n",
                     "fleet: {name: peers, key_file: ", dir / "key", ", node: ", NameOfNode(i),
                     ", ca_file: ", ca.cert_file(), ", peers: [", peers, "]", more, "}\n");
  }
  void Start() {
    for (const auto& site : sites) site->Start();
    for (size_t i = 0; i < sites.size(); ++i) AwaitPeers(i);
    for (const auto& site : sites) engines.push_back(std::make_unique<Engine>(*site));
  }
  // Waits until the node has reached all others.
  void AwaitPeers(size_t i) const {
    for (size_t j = 0; j < sites.size(); ++j) {
      const std::string line = absl::StrCat("a peer answers\" peer=", NameOfNode(j));
      if (j != i && !sites[i]->AwaitLog(line)) FAIL(sites[i]->Log());
    }
  }

  ScratchDir dir;
  TestCa ca;
  std::string more;  // of the fleet's settings
  std::vector<int> ports;
  std::vector<std::string> addresses;
  std::vector<std::unique_ptr<Site>> sites;
  std::vector<std::unique_ptr<Engine>> engines;
};

}  // namespace kvkeep::e2e
