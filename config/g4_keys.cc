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
           "A bucket by S3's protocol, or a directory that machines share, made the fleet's by "
           "kvkeep g4 init. What g4.admission picks is written there; lookups that wait, and "
           "prefetches, bring what this node has not."),
      Text("g4.prefix", In(&Config::g4, &G4Config::prefix), "a prefix",
           "at most 256 of a-z, A-Z, 0-9, '.', '_', '-' and '/'", CheckG4Prefix, Empty::kAllowed,
           "Before the names of all objects."),
      Text("g4.region", In(&Config::g4, &G4Config::region), "a name",
           "1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'", CheckPlainName, Empty::kRefused,
           "What requests are signed for."),
      Bool("g4.virtual_host", In(&Config::g4, &G4Config::virtual_host),
           "The bucket's name is part of the host's, as AWS wants it, not of the path."),
      Choice<std::string>(
          "g4.credentials", In(&Config::g4, &G4Config::credentials),
          AsSaid(
              {"auto", "file", "process", "environment", "web_identity", "container", "instance"}),
          "Where the bucket's keys come from (deploy/README.md). auto: the first one set, in this "
          "order; never instance."),
      Dir("g4.credentials_file", In(&Config::g4, &G4Config::credentials_file), Empty::kAllowed,
          "Access key id and secret access key, a line each; a third one is the session token. "
          "Others may have no access to the file. Read again when it changes."),
      Text("g4.credential_process", In(&Config::g4, &G4Config::credential_process), "a command",
           "a program's absolute path and its arguments, apart by blanks; \"\" for none",
           CheckCommand, Empty::kAllowed,
           "A program that prints keys as JSON, as AWS's credential_process does; run by no shell, "
           "for a minute at most. No secret belongs in it: the config is shown."),
      Dir("g4.ca_file", In(&Config::g4, &G4Config::ca_file), Empty::kAllowed,
          "Certificates, PEM, of whoever may sign the server's; empty: the system's."),
      Text("g4.proxy", In(&Config::g4, &G4Config::proxy), "a proxy",
           "http://host:port; \"\" for none", CheckProxy, Empty::kAllowed,
           "A forward proxy, asked by CONNECT for https. Without it the bucket is asked directly: "
           "http_proxy and its kin in the environment are not heeded."),
      Count("g4.connections", In(&Config::g4, &G4Config::connections), {1, 1024},
            "To the server, at once; writes have a quarter of them at most."),
      Size("g4.write_bytes_per_second", In(&Config::g4, &G4Config::write_bytes_per_second),
           {0, 64 * kGiB}, "How much is written there; 0: nothing."),
      Choice<std::string>(
          "g4.admission", In(&Config::g4, &G4Config::admission), AsSaid({"second_use", "all"}),
          "What is written there: chunks that a lookup finds after their put, or all that is put."),
      Duration("g4.lifetime", In(&Config::g4, &G4Config::lifetime),
               {std::chrono::days(0), std::chrono::days(3650)},
               "How old objects get there, by a lifecycle rule of the bucket or by kvkeep g4 "
               "sweep: what is used when it is half as old is written anew. 0: they do not "
               "expire."),
      Count("g4.epoch", In(&Config::g4, &G4Config::epoch), {0, 1'000'000'000},
            "Part of the names of objects: with another one G4 is empty at once."),
      Count("remote.probes_per_second",
            In(&Config::remote, &RemoteConfig::probes_per_second), {1, 1'000'000},
            "How many chunks are asked for in a second, at most, under all keys together that the "
            "node has (the fleet's, tenants'). A lookup that would ask for more finds less. "
            "Each tenant has its share in any case."),
      Text("fleet.name", In(&Config::fleet, &FleetConfig::name), "a name",
           "1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'; \"\" for none", CheckPlainName,
           Empty::kAllowed, "Nodes of another name share nothing with this one."),
      Dir("fleet.key_file", In(&Config::fleet, &FleetConfig::key_file), Empty::kAllowed,
          "32 random bytes, or 64 hexadecimal digits, the same on all nodes of the fleet: who has "
          "them may read and write all that they share. Others may have no access to the file."),
      Paths("fleet.previous_key_files", In(&Config::fleet, &FleetConfig::previous_key_files),
            kMaxPreviousFleetKeys,
            "Keys of the fleet of before. What is not in G4 under fleet.key_file is looked for "
            "under these, in this order: name them until their objects have expired."),
  };
}

}  // namespace kvkeep::config_internal
