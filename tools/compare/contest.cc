#include "tools/compare/contest.h"

#include <absl/algorithm/container.h>
#include <absl/strings/str_cat.h>

#include <chrono>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tools/compare/slice.h"

namespace kvkeep::compare {
namespace {

using bench::ChildProcess;
using bench::Json;
using bench::Measured;

constexpr std::chrono::milliseconds kPatience{300'000};
constexpr char kBareStream[] = "gRPC stream";

struct Kind {
  const char* name;
  bool is_kvkeep;
  bool tcp;
  absl::StatusOr<std::unique_ptr<Contestant>> (*make)(const Setup& setup);
};

template <KvkeepPath path>
absl::StatusOr<std::unique_ptr<Contestant>> Make(const Setup& setup) {
  return MakeKvkeep(setup, path);
}

const Kind kKinds[] = {
    {"memcpy", false, false, MakeMemcpy},
    {"kvkeep local", true, false, Make<KvkeepPath::kLocal>},
    {"kvkeep staging", true, false, Make<KvkeepPath::kStaging>},
    {"kvkeep gRPC", true, false, Make<KvkeepPath::kUnix>},
    {"kvkeep TCP", true, true, Make<KvkeepPath::kTcp>},
    {kBareStream, false, false, MakeBareStream},
    {"Redis", false, false, MakeRedis},
    {"files", false, false, MakeFiles},
};

// In the child: makes the contestant and answers commands.
class Answers {
 public:
  Answers(const Kind& kind, Setup setup, uint64_t region_bytes)
      : kind_(kind), setup_(std::move(setup)), region_bytes_(region_bytes) {}

  absl::StatusOr<Json> Answer(const Json& command) {
    const std::string what = command.at("do");
    if (what == "start") {
      KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<Contestant> contestant, kind_.make(setup_));
      KVKEEP_ASSIGN_OR_RETURN(slices_, Slices::Create(std::move(contestant), region_bytes_));
      slices_->set_keeps_bytes(kind_.name != absl::string_view(kBareStream));
      return Json::object();
    }
    if (what == "load") {
      KVKEEP_RETURN_IF_ERROR(slices_->Load(command.at("size"), command.at("keys")));
      return Json::object();
    }
    KVKEEP_ASSIGN_OR_RETURN(const Operation operation, ParseOperation(what));
    KVKEEP_ASSIGN_OR_RETURN(const Measured measured,
                            slices_->Run(operation, command.at("batch"), command.at("seconds")));
    return bench::ToWire(measured);
  }

 private:
  const Kind& kind_;
  const Setup setup_;
  const uint64_t region_bytes_;
  std::unique_ptr<Slices> slices_;
};

}  // namespace

std::vector<std::string> Contest::Names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

absl::StatusOr<Contest::Side> Contest::StartSide(const std::string& name) {
  const Kind& kind = *absl::c_find_if(kKinds, [&](const Kind& k) { return k.name == name; });
  Setup setup{.directory = options_.directory, .capacity_bytes = options_.capacity_bytes};
  Side side;
  if (kind.is_kvkeep) {
    KVKEEP_ASSIGN_OR_RETURN(side.daemon,
                            bench::DaemonProcess::Start({.binary = options_.daemon_binary,
                                                         .scratch_dir = options_.directory,
                                                         .tcp = kind.tcp,
                                                         .g2_bytes = options_.capacity_bytes}));
    setup.endpoint = side.daemon->endpoint();
    setup.tcp_endpoint = side.daemon->tcp_endpoint();
    setup.local_socket = side.daemon->local_socket();
    setup.admin_endpoint = side.daemon->admin_endpoint();
  }
  KVKEEP_ASSIGN_OR_RETURN(
      side.child, ChildProcess::Fork(name, [&kind, setup, region = options_.region_bytes] {
        auto here = std::make_shared<Answers>(kind, setup, region);
        return ChildProcess::Handler([here](const Json& command) { return here->Answer(command); });
      }));
  KVKEEP_RETURN_IF_ERROR(side.child->Call({{"do", "start"}}, kPatience).status());
  return side;
}

absl::StatusOr<std::unique_ptr<Contest>> Contest::Start(
    const ContestOptions& options, const std::function<void(const std::string&)>& said) {
  std::unique_ptr<Contest> contest(new Contest(options));
  for (const std::string& name : Names()) {
    if (!options.only.empty() && !absl::c_linear_search(options.only, name)) continue;
    said(absl::StrCat("starting ", name));
    absl::StatusOr<Side> side = contest->StartSide(name);
    if (!side.ok()) {  // it may not be installed; that it lacks is said in the report too
      said(absl::StrCat(name, " is not there: ", side.status().ToString()));
      continue;
    }
    contest->sides_[name] = *std::move(side);
    contest->present_.push_back(name);
  }
  if (contest->present_.empty()) return absl::UnavailableError("nobody to compare");
  return contest;
}

absl::StatusOr<std::vector<Discipline>> Contest::Run(const std::vector<Operation>& operations,
                                                     uint64_t size, uint64_t keys, uint64_t batch) {
  for (const std::string& name : present_) {
    const absl::StatusOr<Json> loaded =
        sides_[name].child->Call({{"do", "load"}, {"size", size}, {"keys", keys}}, kPatience);
    if (!loaded.ok()) return loaded.status();
  }
  std::vector<Discipline> disciplines;
  for (const Operation operation : operations) {
    Discipline discipline{.operation = operation, .size = size, .batch = batch, .results = {}};
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t turn = 0; turn < present_.size(); ++turn) {
        const std::string& name = present_[(turn + static_cast<size_t>(round)) % present_.size()];
        const absl::StatusOr<Json> answer =
            sides_[name].child->Call({{"do", std::string(OperationName(operation))},
                                      {"batch", batch},
                                      {"seconds", options_.seconds}},
                                     kPatience);
        if (!answer.ok()) return answer.status();
        discipline.results[name].rounds.push_back(bench::FromWire(*answer));
      }
    }
    disciplines.push_back(std::move(discipline));
  }
  return disciplines;
}

}  // namespace kvkeep::compare
