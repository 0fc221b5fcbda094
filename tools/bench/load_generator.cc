#include "tools/bench/load_generator.h"

#include <utility>

#include "tiers/base/status_macros.h"
#include "tools/bench/cpu_time.h"

namespace kvkeep::bench {

absl::StatusOr<std::unique_ptr<LoadGenerator>> LoadGenerator::Start(
    const ClientTarget& target, const std::string& admin_endpoint, uint32_t clients,
    int daemon_pid) {
  std::unique_ptr<LoadGenerator> generator(new LoadGenerator());
  for (uint32_t i = 0; i < clients; ++i) {
    KVKEEP_ASSIGN_OR_RETURN(auto client, BenchClient::Start(target, i, clients));
    generator->clients_.push_back(std::move(client));
  }
  generator->daemon_pid_ = daemon_pid;
  if (admin_endpoint.empty()) return generator;
  KVKEEP_ASSIGN_OR_RETURN(generator->probe_, DaemonProbe::Start(admin_endpoint));
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus status, generator->Status());
  if (daemon_pid == 0) generator->daemon_pid_ = status.pid;
  return generator;
}

absl::StatusOr<DaemonStatus> LoadGenerator::Status() {
  if (probe_ == nullptr) return DaemonStatus{};
  return probe_->Status();
}

absl::Status LoadGenerator::Load(uint64_t first, uint64_t count, uint64_t size, bool no_g3) {
  return clients_[0]->Load(first, count, size, no_g3);
}

absl::StatusOr<Series> LoadGenerator::Prepare(std::string name, const CaseSpec& spec) {
  int prepared = 0;
  for (auto& client : clients_) {
    KVKEEP_ASSIGN_OR_RETURN(prepared, client->Prepare(spec));
  }
  Series series{.name = std::move(name), .has_daemon = true};
  series.about = ToJson(spec);
  series.about["clients"] = clients_.size();
  series.about["path"] = clients_[0]->path();
  series.about["prepared"] = prepared;  // the same on each client
  return series;
}

absl::Status LoadGenerator::Run(double seconds, Series* series, uint64_t max_ops) {
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus before, Status());
  const double cpu_before = daemon_pid_ > 0 ? CpuSecondsOf(daemon_pid_).value_or(0) : 0;
  const int prepared = series->about.at("prepared");
  const bool verify = series->about.at("verify");
  for (auto& client : clients_) {
    KVKEEP_RETURN_IF_ERROR(client->StartRun(prepared, seconds, max_ops, verify));
  }
  Measured all;
  for (auto& client : clients_) {
    KVKEEP_ASSIGN_OR_RETURN(const Measured measured, client->FinishRun(seconds));
    all.Add(measured, /*side_by_side=*/true);
  }
  const double cpu_after = daemon_pid_ > 0 ? CpuSecondsOf(daemon_pid_).value_or(cpu_before) : 0;
  KVKEEP_ASSIGN_OR_RETURN(const DaemonStatus after, Status());
  DaemonUsage used = UsageBetween(before, after);
  used.cpu_seconds = cpu_after - cpu_before;
  series->daemon.Add(used);
  series->rounds.push_back(std::move(all));
  return absl::OkStatus();
}

}  // namespace kvkeep::bench
