#include "tools/kvkeep/doctor_sockets.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

namespace kvkeep::tools {
namespace {

constexpr mode_t kOthers = 0077;

// A tenant, and the directories of its sockets.
struct SocketsOfTenant {
  std::string name;
  std::vector<std::string> dirs;
};

std::string DirectoryOf(const std::string& socket) {
  return std::filesystem::path(socket).lexically_normal().parent_path().string();
}

SocketsOfTenant SocketsOf(const std::string& name, const std::string& grpc,
                          const std::string& local) {
  SocketsOfTenant sockets{.name = name, .dirs = {DirectoryOf(grpc)}};
  if (!local.empty()) sockets.dirs.push_back(DirectoryOf(local));
  return sockets;
}

std::vector<SocketsOfTenant> SocketsOfAll(const Config& config) {
  std::vector<SocketsOfTenant> all = {
      SocketsOf("default", config.listen.unix_path, config.listen.local_path)};
  for (const TenantConfig& tenant : config.tenants) {
    all.push_back(SocketsOf(tenant.name, tenant.unix_path, tenant.local_path));
  }
  return all;
}

// Returns whether a container that gets `whole` also has `dir`.
bool Within(const std::string& dir, const std::string& whole) {
  return dir == whole || absl::StartsWith(dir, whole == "/" ? whole : absl::StrCat(whole, "/"));
}

Finding AdminSocket(const Config& config) {
  Finding finding{.subject = "admin socket"};
  const std::string dir = DirectoryOf(config.listen.admin_path);
  // The embedded default is there: the daemon keeps other users out of its state directory.
  const bool in_state = dir == (std::filesystem::path(config.state.dir) / "").parent_path();
  for (const SocketsOfTenant& tenant : SocketsOfAll(config)) {
    for (const std::string& theirs : tenant.dirs) {
      if (in_state || !Within(dir, theirs)) continue;
      finding.state = Finding::State::kWarn;
      finding.found = absl::StrCat("in ", theirs, ", with the sockets of tenant ", tenant.name);
      finding.to_do =
          "a container's root that gets the whole directory is the daemon's admin: put "
          "listen.admin in a directory of its own, like /run/kvkeep-admin";
      return finding;
    }
  }
  finding.found = absl::StrCat(in_state ? "in the state directory, " : "in ", dir);
  struct stat info {};
  if (in_state || stat(dir.c_str(), &info) != 0 || (info.st_mode & kOthers) == 0) return finding;
  finding.state = Finding::State::kWarn;
  absl::StrAppendFormat(&finding.found, ", mode %04o", info.st_mode & 07777);
  finding.to_do = absl::StrCat(
      "other users can enter it, and only the socket's own mode keeps them out: chmod 0700 ", dir);
  return finding;
}

Finding TenantsSockets(const Config& config) {
  Finding finding{.subject = "tenants' sockets", .found = "a directory a tenant"};
  const std::vector<SocketsOfTenant> all = SocketsOfAll(config);
  for (const SocketsOfTenant& tenant : all) {
    for (const SocketsOfTenant& other : all) {
      if (&tenant == &other) continue;
      for (const std::string& dir : tenant.dirs) {
        for (const std::string& whole : other.dirs) {
          if (!Within(dir, whole)) continue;
          finding.state = Finding::State::kWarn;
          finding.found = absl::StrCat("those of ", tenant.name, " lie in ", whole,
                                       ", with those of ", other.name);
          finding.to_do =
              "a pod that gets the whole directory can act as both (in Kubernetes a uid is no "
              "tenant): use a directory for each, like /run/kvkeep-tenants/NAME";
          return finding;
        }
      }
    }
  }
  return finding;
}

}  // namespace

std::vector<Finding> ExamineSockets(const Config& config) {
  std::vector<Finding> findings = {AdminSocket(config)};
  if (!config.tenants.empty()) findings.push_back(TenantsSockets(config));
  return findings;
}

}  // namespace kvkeep::tools
