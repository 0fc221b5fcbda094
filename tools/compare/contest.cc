#include "tools/compare/contest.h"

#include <absl/algorithm/container.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tools/bench/cpu_time.h"
#include "tools/compare/slice.h"

namespace kvkeep::compare {
namespace {

using bench::ChildProcess;
using bench::Json;
using bench::Measured;

constexpr std::chrono::milliseconds kPatience{300'000};
constexpr size_t kLastWordsBytes = 1000;

template <KvkeepPath path>
absl::StatusOr<std::unique_ptr<Contestant>> Make(const Setup& setup) {
  return MakeKvkeep(setup, path);
}

// In the child: makes the contestant and answers commands. peers/peer.py is its like in Python.
class Answers {
 public:
  using Make = absl::StatusOr<std::unique_ptr<Contestant>> (*)(const Setup& setup);
  Answers(Make make, bool keeps_bytes, Setup setup)
      : make_(make), keeps_bytes_(keeps_bytes), setup_(std::move(setup)) {}

  absl::StatusOr<Json> Answer(const Json& command) {
    const std::string what = command.at("do");
    if (what == "start") {
      KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<Contestant> contestant, make_(setup_));
      const std::vector<pid_t> servers = contestant->Servers();
      KVKEEP_ASSIGN_OR_RETURN(slices_,
                              Slices::Create(std::move(contestant), command.at("region_bytes")));
      slices_->set_keeps_bytes(keeps_bytes_);
      return Json{{"version", ""}, {"servers", servers}};
    }
    if (what == "load") {
      KVKEEP_RETURN_IF_ERROR(slices_->Load(command.at("size"), command.at("batch")));
      return Json::object();
    }
    if (what == "fill") {
      KVKEEP_ASSIGN_OR_RETURN(const Measured measured, slices_->Fill(command.at("calls")));
      return bench::ToWire(measured);
    }
    KVKEEP_ASSIGN_OR_RETURN(const Operation operation, ParseOperation(what));
    KVKEEP_ASSIGN_OR_RETURN(const Measured measured,
                            slices_->Run(operation, command.at("seconds")));
    return bench::ToWire(measured);
  }

 private:
  const Make make_;
  const bool keeps_bytes_;
  const Setup setup_;
  std::unique_ptr<Slices> slices_;
};

std::string LastWords(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.substr(all.size() - std::min(all.size(), kLastWordsBytes));
}

// Of those that are still there.
double CpuSecondsOfAll(const std::vector<pid_t>& servers) {
  double sum = 0;
  for (const pid_t server : servers) sum += bench::CpuSecondsOf(server).value_or(0);
  return sum;
}

}  // namespace

struct Contest::Kind {
  const char* name;
  bool is_kvkeep;
  bool tcp;
  Answers::Make make;   // null: a program
  const char* program;  // in the directory of peers
};

const Contest::Kind Contest::kKinds[] = {
    {kMemcpy, false, false, MakeMemcpy, nullptr},
    {kKvkeepLocal, true, false, Make<KvkeepPath::kLocal>, nullptr},
    {kKvkeepStaging, true, false, Make<KvkeepPath::kStaging>, nullptr},
    {kKvkeepGrpc, true, false, Make<KvkeepPath::kUnix>, nullptr},
    {"kvkeep TCP", true, true, Make<KvkeepPath::kTcp>, nullptr},
    {kBareStream, false, false, MakeBareStream, nullptr},
    {"Redis", false, false, MakeRedis, nullptr},
    {"files", false, false, MakeFiles, nullptr},
    {kLmcache, false, false, nullptr, "lmcache_peer.py"},
    {kMooncake, false, false, nullptr, "mooncake_peer.py"},
};

std::vector<std::string> Contest::Names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

absl::Status Contest::StartDaemon(const Kind& kind, Setup* setup, Side* side) const {
  KVKEEP_ASSIGN_OR_RETURN(side->daemon,
                          bench::DaemonProcess::Start({.binary = options_.daemon_binary,
                                                       .scratch_dir = options_.directory,
                                                       .tcp = kind.tcp,
                                                       .g2_bytes = options_.capacity_bytes}));
  setup->endpoint = side->daemon->endpoint();
  setup->tcp_endpoint = side->daemon->tcp_endpoint();
  setup->local_socket = side->daemon->local_socket();
  setup->admin_endpoint = side->daemon->admin_endpoint();
  side->servers = {side->daemon->pid()};
  return absl::OkStatus();
}

absl::Status Contest::StartProgram(const Kind& kind, Side* side) const {
  const auto environment = options_.environments.find(kind.name);
  if (environment == options_.environments.end()) {
    return absl::NotFoundError("no environment was named that has it");
  }
  side->log = absl::StrCat(options_.directory, "/", kind.name, ".log");
  const UniqueFd log(open(side->log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return absl::ErrnoToStatus(errno, side->log);
  KVKEEP_ASSIGN_OR_RETURN(
      side->child, ChildProcess::Run(kind.name,
                                     {absl::StrCat(environment->second, "/bin/python3"), "-B",
                                      absl::StrCat(options_.peers_directory, "/", kind.program)},
                                     log.get()));
  return absl::OkStatus();
}

absl::StatusOr<Contest::Side> Contest::StartSide(const Kind& kind) {
  Side side;
  if (kind.make == nullptr) {
    KVKEEP_RETURN_IF_ERROR(StartProgram(kind, &side));
  } else {
    Setup setup{.directory = options_.directory, .capacity_bytes = options_.capacity_bytes};
    if (kind.is_kvkeep) KVKEEP_RETURN_IF_ERROR(StartDaemon(kind, &setup, &side));
    const bool keeps_bytes = kind.name != absl::string_view(kBareStream);
    KVKEEP_ASSIGN_OR_RETURN(side.child,
                            ChildProcess::Fork(kind.name, [make = kind.make, keeps_bytes, setup] {
                              auto here = std::make_shared<Answers>(make, keeps_bytes, setup);
                              return ChildProcess::Handler(
                                  [here](const Json& command) { return here->Answer(command); });
                            }));
  }
  const absl::StatusOr<Json> started =
      side.child->Call({{"do", "start"},
                        {"directory", options_.directory},
                        {"capacity_bytes", options_.capacity_bytes},
                        {"region_bytes", options_.region_bytes}},
                       kPatience);
  if (!started.ok() && !side.log.empty()) {
    return absl::Status(started.status().code(),
                        absl::StrCat(started.status().message(), "\n", LastWords(side.log)));
  }
  KVKEEP_RETURN_IF_ERROR(started.status());
  side.version = started->at("version");
  for (const pid_t server : started->at("servers")) side.servers.push_back(server);
  return side;
}

absl::StatusOr<std::unique_ptr<Contest>> Contest::Start(
    const ContestOptions& options, const std::function<void(const std::string&)>& said) {
  std::unique_ptr<Contest> contest(new Contest(options));
  for (const Kind& kind : kKinds) {
    const std::string name = kind.name;
    if (!options.only.empty() && !absl::c_linear_search(options.only, name)) continue;
    said(absl::StrCat("starting ", name));
    absl::StatusOr<Side> side = contest->StartSide(kind);
    if (!side.ok()) {  // it may not be installed; that it lacks is said in the report too
      said(absl::StrCat(name, " is not there: ", side.status().ToString()));
      continue;
    }
    if (!side->version.empty()) contest->versions_[name] = side->version;
    contest->sides_[name] = *std::move(side);
    contest->present_.push_back(name);
  }
  if (contest->present_.empty()) return absl::UnavailableError("nobody to compare");
  return contest;
}

absl::Status Contest::Take(const std::string& name, const Json& command, Discipline* discipline) {
  Side& side = sides_[name];
  const double cpu = CpuSecondsOfAll(side.servers);
  const absl::StatusOr<Json> answer = side.child->Call(command, kPatience);
  if (!answer.ok()) return answer.status();
  bench::Series& series = discipline->results[name];
  series.rounds.push_back(bench::FromWire(*answer));
  series.has_daemon = !side.servers.empty();
  series.daemon.cpu_seconds += CpuSecondsOfAll(side.servers) - cpu;
  return absl::OkStatus();
}

absl::Status Contest::TakeRounds(uint64_t rounds,
                                 const std::function<Json(uint64_t round)>& command_of,
                                 Discipline* discipline) {
  for (uint64_t round = 0; round < rounds; ++round) {
    for (uint64_t place = 0; place < present_.size(); ++place) {
      const std::string& name = present_[(place + round) % present_.size()];
      KVKEEP_RETURN_IF_ERROR(Take(name, command_of(round), discipline));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Discipline>> Contest::Run(const std::vector<Operation>& operations,
                                                     uint64_t size, uint64_t keys, uint64_t batch) {
  for (const std::string& name : present_) {
    const absl::StatusOr<Json> loaded =
        sides_[name].child->Call({{"do", "load"}, {"size", size}, {"batch", batch}}, kPatience);
    if (!loaded.ok()) return loaded.status();
  }
  std::vector<Discipline> disciplines;
  const auto discipline_of = [&](Operation operation) {
    return Discipline{.operation = operation, .size = size, .batch = batch, .results = {}};
  };
  const auto rounds = static_cast<uint64_t>(options_.rounds);
  const uint64_t calls = std::max<uint64_t>(keys / batch, 1);
  const uint64_t parts = std::min(rounds, calls);
  Discipline fill = discipline_of(Operation::kPut);
  fill.first_fill = untouched_;
  KVKEEP_RETURN_IF_ERROR(TakeRounds(
      parts,
      [&](uint64_t part) {
        return Json{{"do", "fill"}, {"calls", calls * (part + 1) / parts - calls * part / parts}};
      },
      &fill));
  if (untouched_) disciplines.push_back(std::move(fill));
  untouched_ = false;
  for (const Operation operation : operations) {
    Discipline discipline = discipline_of(operation);
    const Json command = {{"do", std::string(OperationName(operation))},
                          {"seconds", options_.seconds}};
    KVKEEP_RETURN_IF_ERROR(TakeRounds(
        rounds, [&](uint64_t) { return command; }, &discipline));
    disciplines.push_back(std::move(discipline));
  }
  return disciplines;
}

}  // namespace kvkeep::compare
