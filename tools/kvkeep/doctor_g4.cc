#include "tools/kvkeep/doctor_g4.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "config/values.h"
#include "tiers/base/random.h"
#include "tiers/nvme/key_ring_file.h"
#include "tiers/objects/bucket_check.h"
#include "tiers/objects/curl_engine.h"
#include "tiers/objects/directory_check.h"
#include "tools/kvkeep/bucket_keys.h"
#include "tools/kvkeep/doctor_service.h"
#include "tools/kvkeep/units.h"

namespace kvkeep::tools {
namespace {

using State = Finding::State;

constexpr std::chrono::milliseconds kAnswerWithin{5'000};
constexpr double kShareOfLink = 0.5;  // more for writes leaves too little for what is read

Finding Failed(std::string subject, std::string found, std::string to_do) {
  return {.subject = std::move(subject),
          .state = State::kFail,
          .found = std::move(found),
          .to_do = std::move(to_do)};
}

// Lets root act as the daemon's user for a while, to see what that user may read. It sets group and
// groups first and resets them last, as only root may set them.
class AsUserOfService {
 public:
  explicit AsUserOfService(const Machine& machine) {
    const std::string name = ServiceSetting(machine.root, "User").value_or("");
    const passwd* const user = name.empty() ? nullptr : getpwnam(name.c_str());
    if (geteuid() != 0 || user == nullptr || user->pw_uid == 0) return;
    const int count = getgroups(0, nullptr);
    groups_.resize(count < 0 ? 0 : static_cast<size_t>(count));
    if (getgroups(count, groups_.data()) != count) return;
    group_ = getegid();
    is_other_ = initgroups(name.c_str(), user->pw_gid) == 0 && setegid(user->pw_gid) == 0 &&
                seteuid(user->pw_uid) == 0;
    if (!is_other_) Return();
  }
  ~AsUserOfService() {
    if (is_other_) Return();
  }
  AsUserOfService(const AsUserOfService&) = delete;
  AsUserOfService& operator=(const AsUserOfService&) = delete;

 private:
  void Return() const {
    const bool back =
        seteuid(0) == 0 && setegid(group_) == 0 && setgroups(groups_.size(), groups_.data()) == 0;
    if (!back) _exit(1);  // a half-changed user must not go on
  }
  bool is_other_ = false;
  gid_t group_ = 0;
  std::vector<gid_t> groups_;
};

// Returns the finding on a file of secrets; `ready` describes a good one.
Finding OfFile(std::string subject, const absl::Status& read, std::string ready,
               std::string to_do) {
  if (!read.ok()) {
    return Failed(std::move(subject), std::string(read.message()), std::move(to_do));
  }
  return {.subject = std::move(subject), .found = std::move(ready)};
}

Finding FleetKey(const std::string& subject, const std::string& file) {
  return OfFile(subject, ReadMasterKey(file).status(), absl::StrCat(file, " can be read"),
                "the daemon will not start: use the same 32 random bytes on every node of the "
                "fleet, chmod 0600, owned by the daemon's user; run this as that user, or as root");
}

void AddFleetKeys(const Config& config, std::vector<Finding>& findings) {
  findings.push_back(FleetKey("fleet key", config.fleet.key_file));
  for (const std::string& file : config.fleet.previous_key_files) {
    findings.push_back(FleetKey("earlier fleet key", file));
  }
  for (const TenantConfig& tenant : config.tenants) {
    if (tenant.g4_key_file.empty()) continue;
    findings.push_back(
        FleetKey(absl::StrCat("G4 key of tenant ", tenant.name), tenant.g4_key_file));
  }
}

Finding Credentials(const S3KeyOptions& options, const absl::Status& read) {
  const std::string& file = options.file;
  if (!file.empty()) {
    return OfFile("G4 credentials", read, absl::StrCat(file, " can be read"),
                  "G4 will refuse all requests: use key id and secret, a line each, chmod 0600, "
                  "owned by the daemon's user; run this as that user, or as root");
  }
  if (!options.process.empty() && getuid() != geteuid()) {
    return {.subject = "G4 credentials",
            .state = State::kWarn,
            .found = "root does not run g4.credential_process for the daemon's user",
            .to_do = "run as that user: kvkeep g4 check --credential-process COMMAND"};
  }
  if (!options.process.empty()) {
    return OfFile("G4 credentials", read, "g4.credential_process prints them",
                  "G4 will refuse all requests: run the command as the daemon's user");
  }
  Finding finding = OfFile(
      "G4 credentials", read,
      options.credentials == "instance" ? "in the instance's metadata" : "from this environment",
      "");
  if (read.ok()) return finding;
  finding.state = State::kWarn;  // the daemon's environment may differ
  finding.to_do =
      "set g4.credentials_file, or make sure that the daemon's environment has keys, or the "
      "variables of g4.credentials' source";
  return finding;
}

// Checks as the daemon's user: reads files of other users, and makes files beside them.
Finding Directory(const std::string& directory, const std::string& fleet) {
  Finding finding{.subject = absl::StrCat("G4 at ", directory)};
  for (const BucketFinding& told : CheckDirectory(directory, fleet)) {
    if (told.verdict == BucketFinding::Verdict::kGood) continue;
    const bool bad = told.verdict == BucketFinding::Verdict::kBad;
    if (!bad && finding.state != State::kOk) continue;
    finding.state = bad ? State::kFail : State::kWarn;
    finding.found = told.says;
    finding.to_do = told.means;
    if (bad) return finding;
  }
  if (finding.found.empty()) finding.found = "a directory that can be written and read";
  return finding;
}

// The interface that the default route goes by, and its rate, from DefaultLink; none: not known.
struct Link {
  std::string name;
  double bytes_per_second = 0;
};
std::optional<Link> DefaultLink(const Machine& machine) {
  std::ifstream routes(machine.root + "/proc/net/route");
  for (std::string line; std::getline(routes, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::ByAnyChar("\t "),
                                                           absl::SkipEmpty());
    if (fields.size() < 2 || fields[1] != "00000000") continue;
    std::ifstream file(absl::StrCat(machine.root, "/sys/class/net/", fields[0], "/speed"));
    double megabits = 0;
    if (!(file >> megabits) || megabits <= 0) return std::nullopt;
    return Link{fields[0], megabits * 1e6 / 8};
  }
  return std::nullopt;
}

Finding WriteRate(const G4Config& g4, const Machine& machine) {
  Finding finding{.subject = "writes of G4"};
  if (g4.write_bytes_per_second == 0) {
    finding.state = State::kWarn;
    finding.found = "none: g4.write_bytes_per_second is 0";
    finding.to_do = "set it, unless this node must only read other nodes' chunks";
    return finding;
  }
  finding.found = absl::StrCat(FormatBytes(g4.write_bytes_per_second), " a second at most");
  const std::optional<Link> link = DefaultLink(machine);
  if (!link.has_value()) return finding;
  const auto wanted = static_cast<double>(g4.write_bytes_per_second);
  absl::StrAppend(&finding.found, ", the link ", link->name, " has ",
                  FormatBytes(static_cast<uint64_t>(link->bytes_per_second)));
  if (wanted <= kShareOfLink * link->bytes_per_second) return finding;
  finding.state = State::kWarn;
  finding.to_do = absl::StrCat(
      "writes may take more than half of the link from reads of G4 and from engines: lower "
      "g4.write_bytes_per_second to ",
      static_cast<uint64_t>(kShareOfLink * link->bytes_per_second));
  return finding;
}

Finding OfBucket(const std::string& where, const BucketFinding& told) {
  const bool clock = told.what.find("clock") != std::string::npos;
  // An answer begins with a status number; otherwise the client says why there is none.
  const bool answered = !told.says.empty() && absl::ascii_isdigit(told.says.front());
  Finding finding{.subject = clock ? "G4's clock" : absl::StrCat("G4 at ", where),
                  .found = clock ? absl::StrCat(told.says, " beside this machine's")
                                 : absl::StrCat(answered ? "answers " : "", told.says)};
  if (told.verdict == BucketFinding::Verdict::kGood) return finding;
  finding.state =
      told.verdict == BucketFinding::Verdict::kBad ? State::kFail : State::kWarn;
  finding.to_do = clock ? absl::StrCat("set this machine's clock or the server's: ", told.means)
                        : absl::StrCat(told.means, "; kvkeep g4 check tests all of it");
  return finding;
}

std::vector<Finding> AskServer(const G4Config& g4, const G4Place& place,
                               const SharedS3Keys& keys) {
  const std::string subject = absl::StrCat("G4 at ", g4.url);
  const absl::StatusOr<S3Urls> urls = S3Urls::Make({.endpoints = {place.endpoint},
                                                    .bucket = place.bucket,
                                                    .prefix = g4.prefix,
                                                    .region = g4.region,
                                                    .virtual_host = g4.virtual_host});
  if (!urls.ok()) return {Failed(subject, std::string(urls.status().message()), "mend g4")};
  const auto engine = CurlEngine::Make({.ca_file = g4.ca_file, .proxy = g4.proxy}, RealClock());
  if (!engine.ok()) {
    return {Failed(subject, std::string(engine.status().message()), "mend g4.ca_file")};
  }
  std::vector<Finding> findings;
  for (const BucketFinding& told : AskBucket(*urls, keys, {.each_within = kAnswerWithin},
                                             engine->get(), RealClock(), RealRandom())) {
    findings.push_back(OfBucket(g4.url, told));
  }
  return findings;
}

}  // namespace

std::vector<Finding> ExamineG4(const Config& config, const Machine& machine) {
  const G4Config& g4 = config.g4;
  if (g4.url.empty()) return {};
  const G4Place place = SplitG4Url(g4.url);
  std::vector<Finding> findings;
  absl::StatusOr<SharedS3Keys> keys = absl::NotFoundError("a directory needs none");
  {
    const AsUserOfService user(machine);
    AddFleetKeys(config, findings);
    if (place.directory.empty()) {
      const S3KeyOptions options{.credentials = g4.credentials,
                                 .file = g4.credentials_file,
                                 .process = g4.credential_process};
      keys = FindBucketKeys(options, g4.region, {.ca_file = g4.ca_file, .proxy = g4.proxy});
      findings.push_back(Credentials(options, keys.status()));
    } else {
      findings.push_back(Directory(place.directory, config.fleet.name));
    }
  }
  findings.push_back(WriteRate(g4, machine));
  if (!keys.ok()) return findings;  // a bucket needs its keys
  for (Finding& finding : AskServer(g4, place, *keys)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace kvkeep::tools
