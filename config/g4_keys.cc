#include "config/g4_keys.h"

#include <string>

#include "config/key_kinds.h"
#include "config/values.h"

namespace kvkeep::config_internal {
namespace {

constexpr size_t kMaxPreviousFleetKeys = 3;  // each is another probe for what is not there

}  // namespace

std::vector<ConfigKey> G4Keys() {
  return {
      Text("g4.url", In(&Config::g4, &G4Config::url), "where G4 is",
           "https://host/bucket, http://host:port/bucket or file:///directory; \"\" for off",
           CheckG4Url, Empty::kAllowed,
           "An S3 bucket, or a shared directory that kvkeep g4 init made the fleet's."),
      Text("g4.prefix", In(&Config::g4, &G4Config::prefix), "a prefix",
           "at most 256 of a-z, A-Z, 0-9, '.', '_', '-' and '/'", CheckG4Prefix, Empty::kAllowed,
           "Prefix of the names of all objects."),
      Text("g4.region", In(&Config::g4, &G4Config::region), "a name",
           "1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'", CheckPlainName, Empty::kRefused,
           "Region that requests are signed for."),
      Bool("g4.virtual_host", In(&Config::g4, &G4Config::virtual_host),
           "The bucket's name is part of the host's name, as AWS wants it, not of the path."),
      Choice<std::string>("g4.credentials", In(&Config::g4, &G4Config::credentials),
                          AsSaid({"auto", "file", "process", "environment", "web_identity",
                                  "container", "instance"}),
                          "Source of the bucket's keys (deploy/README.md). auto: the first one "
                          "set, in this order; never instance."),
      Dir("g4.credentials_file", In(&Config::g4, &G4Config::credentials_file), Empty::kAllowed,
          "Access key id and secret access key, one a line; a third line is the session token. "
          "Others may have no access to the file. Read again when it changes."),
      Text("g4.credential_process", In(&Config::g4, &G4Config::credential_process), "a command",
           "a program's absolute path and its arguments, apart by blanks; \"\" for none",
           CheckCommand, Empty::kAllowed,
           "A program that prints keys as AWS's credential_process does, run without a shell for a "
           "minute at most. Put no secret here: the config is shown."),
      Dir("g4.ca_file", In(&Config::g4, &G4Config::ca_file), Empty::kAllowed,
          "CA certificates of the server, PEM; empty: the system's, or those of SSL_CERT_FILE "
          "and SSL_CERT_DIR."),
      Text("g4.proxy", In(&Config::g4, &G4Config::proxy), "a proxy",
           "http://host:port; \"\" for none", CheckProxy, Empty::kAllowed,
           "A forward proxy, asked by CONNECT for https. http_proxy and similar variables of the "
           "environment are ignored."),
      Count("g4.connections", In(&Config::g4, &G4Config::connections), {1, 1024},
            "Connections to the server at once; writes have a quarter of them at most."),
      Size("g4.write_bytes_per_second", In(&Config::g4, &G4Config::write_bytes_per_second),
           {0, 64 * kGiB}, "Bytes written to G4 a second. 0: none."),
      Choice<std::string>("g4.admission", In(&Config::g4, &G4Config::admission),
                          AsSaid({"second_use", "all"}),
                          "Chunks that are written to G4: those that a lookup finds after their "
                          "put (second_use), or all (all)."),
      Duration(
          "g4.lifetime", In(&Config::g4, &G4Config::lifetime),
          {std::chrono::days(0), std::chrono::days(3650)},
          "Age at which objects expire, by a rule of the bucket or by kvkeep g4 sweep. Chunks that "
          "are used after half of it are written anew. 0: they do not expire."),
      Count("g4.epoch", In(&Config::g4, &G4Config::epoch), {0, 1'000'000'000},
            "Part of the names of objects: with another value G4 is empty at once."),
      Count("remote.probes_per_second", In(&Config::remote, &RemoteConfig::probes_per_second),
            {1, 1'000'000},
            "Chunks that this node may ask for in a second, under all of its keys together. A "
            "lookup that would ask for more finds less. Each tenant has its share."),
  };
}

std::vector<ConfigKey> FleetKeys() {
  return {
      Text("fleet.name", In(&Config::fleet, &FleetConfig::name), "a name",
           "1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'; \"\" for none", CheckPlainName,
           Empty::kAllowed,
           "Name of the fleet. Nodes with another name share nothing with this one."),
      Dir("fleet.key_file", In(&Config::fleet, &FleetConfig::key_file), Empty::kAllowed,
          "32 random bytes, or 64 hexadecimal digits, the same on all nodes of the fleet. Anyone "
          "who has them can read and write all that the nodes share. Others may have no access to "
          "the file."),
      Paths("fleet.previous_key_files", In(&Config::fleet, &FleetConfig::previous_key_files),
            kMaxPreviousFleetKeys,
            "Former keys of the fleet, asked for in this order after fleet.key_file. Name them "
            "until their objects have expired."),
      Text("fleet.node", In(&Config::fleet, &FleetConfig::node), "a name",
           "1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'; \"\" for none", CheckPlainName,
           Empty::kAllowed,
           "This node's name in the fleet, a DNS name of tls.cert_file. With it, the node reads "
           "from its peers, before G4, and serves them on listen.tcp, by mutual TLS."),
      Peers("fleet.peers", In(&Config::fleet, &FleetConfig::peers),
            "The other nodes, by their listen.tcp. This node may be among them."),
      Dir("fleet.peers_file", In(&Config::fleet, &FleetConfig::peers_file), Empty::kAllowed,
          "More of them, one a line. Read again when it changes."),
      Dir("fleet.ca_file", In(&Config::fleet, &FleetConfig::ca_file), Empty::kAllowed,
          "CA certificates of the nodes, PEM. tls.client_ca_file must have them, too."),
      Size("fleet.serve_bytes_per_second", In(&Config::fleet, &FleetConfig::serve_bytes_per_second),
           {0, 64 * kGiB},
           "Bytes served to peers a second; what they ask for beyond it is refused. 0: none."),
  };
}

}  // namespace kvkeep::config_internal
