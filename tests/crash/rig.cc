#include "tests/crash/rig.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <utility>

#include "tiers/base/units.h"

namespace kvkeep::crash {
namespace {

// Longer than any client's call may take (load.cc).
constexpr milliseconds kClientPatience{150'000};  // longer than a call's deadline
constexpr milliseconds kDiskPatience{60'000};
// How long nothing may change: longer than between two syncs of a device, after which the blocks of
// removed records come back.
constexpr milliseconds kLook{250};
constexpr int kEqualLooks = 8;

uint64_t AddressSpaceOf(pid_t process) {
  uint64_t pages = 0;
  std::istringstream(e2e::ReadFile(absl::StrCat("/proc/", process, "/statm"))) >> pages;
  REQUIRE(pages > 0);
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Parses fsck's JSON output.
nlohmann::json ReportOf(const std::string& said) {
  nlohmann::json report = nlohmann::json::parse(said, nullptr, false);
  REQUIRE(report.is_object());
  return report;
}

// Sets its soft limit; returns the old one.
uint64_t SetAddressSpace(pid_t process, uint64_t bytes) {
  rlimit limit{};
  REQUIRE(prlimit(process, RLIMIT_AS, nullptr, &limit) == 0);
  const uint64_t before = std::exchange(limit.rlim_cur, bytes);
  REQUIRE(prlimit(process, RLIMIT_AS, &limit, nullptr) == 0);
  return before;
}

}  // namespace

Rig::Rig(const Settings& settings, const RigOptions& options)
    : site(settings), options_(options), state_(ExpectedState::Make(site.path("expected"))) {
  state_->keeps = options.keeps;
  state_->tears = options.tears;
}

Rig::~Rig() {
  Enter(Phase::kEnd);
  site.Kill();  // what a client waits for ends now
  for (const int pid : clients_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void Rig::StartClients() {
  for (uint32_t client = 0; client < options_.clients; ++client) {
    std::vector<std::string> words = {CRASH_CLIENT_PATH,
                                      site.path("expected"),
                                      site.endpoint(),
                                      std::to_string(client),
                                      std::to_string(options_.clients),
                                      std::to_string(options_.keys),
                                      std::to_string(options_.seed * 100 + client)};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      execv(arguments[0], arguments.data());
      _exit(98);
    }
    REQUIRE(pid > 0);
    clients_.push_back(pid);
  }
}

void Rig::Enter(Phase phase) {
  state_->phase = phase;
  ++state_->turn;
}

bool Rig::ClientsAreThere() const {
  for (uint32_t client = 0; client < clients_.size(); ++client) {
    if (state_->clients[client].turn != state_->turn) return false;
  }
  return true;
}

bool Rig::Start() {
  const std::optional<milliseconds> ready = site.TryStart();
  if (!ready.has_value()) return false;
  ready_ms_.push_back(static_cast<double>(ready->count()));
  if (clients_.empty()) StartClients();
  state_->disk_gone = false;
  Enter(Phase::kCheck);
  const bool over = e2e::Eventually(
      [this] { return site.EndedBySignal(SIGKILL) || ClientsAreThere(); }, kClientPatience);
  if (!over) FAIL("a client hangs in its check: " << site.Log());
  if (!site.running()) return false;
  Judge();
  state_->power_cut = false;
  Enter(Phase::kLoad);
  return true;
}

void Rig::StartAndCutShort(milliseconds after) {
  // The timer survives exec, and its signal ends the process as SIGKILL would.
  site.before_exec = [after] {
    const itimerval timer{
        .it_interval = {},
        .it_value = {.tv_sec = after.count() / 1000, .tv_usec = after.count() % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, nullptr);
  };
  const e2e::Ending ending = site.StartAndAwaitEnd();
  INFO(ending.err);
  CHECK(ending.signal == SIGALRM);
  CheckFiles();
}

void Rig::HoldClients() {
  Enter(Phase::kHold);
  const bool held = e2e::Eventually([this] { return ClientsAreThere(); }, kClientPatience);
  if (!held) FAIL("a client hangs in a call");
}

void Rig::KillAfter(milliseconds load) {
  std::this_thread::sleep_for(load);  // under load
  try {
    g3_evictions_ += site.Counter("g3_evictions");
  } catch (const std::exception& error) {  // it does not answer: it crashed, or hangs
    const e2e::Ending ending = site.AwaitEnd();
    FAIL(error.what() << "; signal " << ending.signal << ", status " << ending.exit_status << ": "
                      << ending.err);
  }
  site.Kill();
  HoldClients();
  ++cycles_;
  CheckFiles();
}

uint64_t Rig::FailedCalls() const {
  uint64_t failed = 0;
  for (uint32_t client = 0; client < clients_.size(); ++client) {
    failed += state_->clients[client].failed_calls;
  }
  return failed;
}

AfterCut Rig::CutMemoryAfter(milliseconds load, uint64_t spare_bytes, milliseconds watched) {
  std::this_thread::sleep_for(load);  // under load
  // A miss may be due to a lack of memory. Nothing may be lost: everything has to be there after
  // the next start.
  state_->disk_gone = true;
  const uint64_t failed_before = FailedCalls();
  const auto daemon = static_cast<pid_t>(site.Status().pid());
  const uint64_t unlimited = SetAddressSpace(daemon, AddressSpaceOf(daemon) + spare_bytes);
  e2e::Ending ending;
  bool ended = e2e::Eventually([&] { return site.Ended(&ending); }, watched);
  const bool refused = FailedCalls() > failed_before;
  if (!ended) {
    SetAddressSpace(daemon, unlimited);
    try {
      site.Status();  // with all the memory it wants, it answers
    } catch (const std::exception&) {
      ending = site.AwaitEnd();  // it was about to end; if not soon, it hangs
      ended = true;
    }
    site.Kill();
  }
  INFO("signal " << ending.signal << ", status " << ending.exit_status << ": " << ending.err);
  // SIGABRT: bad_alloc, which is not caught. SIGSEGV: gRPC and jemalloc write to memory that malloc
  // and mmap did not give them.
  CHECK((!ended || ending.signal == SIGABRT || ending.signal == SIGSEGV));
  HoldClients();
  ++cycles_;
  state_->disk_gone = false;
  CheckFiles();
  if (ended) return AfterCut::kEnded;
  return refused ? AfterCut::kRefused : AfterCut::kUnharmed;
}

bool Rig::AwaitItsEnd(milliseconds patience) {
  const bool ended =
      e2e::Eventually([this] { return !site.running() || site.EndedBySignal(SIGKILL); }, patience);
  if (!ended) site.Kill();
  HoldClients();
  ++cycles_;
  CheckFiles();
  return ended;
}

void Rig::StartAndDie() {
  const e2e::Ending ending = site.StartAndAwaitEnd();
  INFO(ending.err);
  CHECK(ending.signal == SIGKILL);
  ++cycles_;
}

Rig::Found Rig::Fsck(const std::string& options) {
  const std::string report = site.path("fsck");
  const std::string command =
      absl::StrCat("'" KVKEEP_PATH "' fsck ", site.path(site.settings.devices[0].name), " ",
                   options, " --config ", site.config_file(), " >", report, " 2>&1");
  // A slow disk may take a while with the writes that the dead daemon left in the kernel. fsck
  // reports them, and waits for some of them.
  int status = 0;
  e2e::Eventually(
      [&] {
        status = std::system(command.c_str());
        return !absl::StrContains(e2e::ReadFile(report), "locked by another process");
      },
      kDiskPatience);
  ++checks_;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, e2e::ReadFile(report)};
}

void Rig::CheckFiles() {
  if (state_->disk_gone) return;
  const Found found = Fsck("--headers-only");
  INFO(found.said);
  CHECK(found.exit_status == 0);
}

void Rig::CheckFilesAfterPowerCut() {
  const Found found = Fsck("--json");
  INFO(found.said);
  const nlohmann::json report = ReportOf(found.said);
  CHECK(report.value("complete", false));
  const uint64_t bad = report.value("bad_chunks", uint64_t{0});
  // The cut may tear a page of the live map; the next start writes it anew. Any other damage that
  // the daemon does not find by its checksums is a lie about what the cut left behind.
  const auto findings = report.value("findings", nlohmann::json::array());
  uint64_t torn = 0, payloads = 0;
  for (const auto& finding : findings) {
    if (finding.value("notice", false)) continue;
    const std::string problem = finding.value("problem", "");
    torn += problem == "live-map" ? 1 : 0;
    payloads += problem == "payload" ? 1 : 0;
  }
  CHECK(bad == payloads);
  CHECK(report.value("problems", uint64_t{1}) == bad + torn);
  bad_after_cuts_ += bad;
}

void Rig::Finish() {
  HoldClients();
  Judge();
  REQUIRE(site.AwaitClean());
  // The background releases leases and frees removed records' blocks.
  uint64_t held = 0;
  int equal_looks = 0;
  const auto at_rest = [&] {
    const v1::StatusResponse now = site.Status();
    const uint64_t before = std::exchange(held, now.devices(0).used_bytes());
    const bool rests =
        held == before && now.g2().leased_bytes() + now.g2().reserved_bytes() == 0;
    equal_looks = rests ? equal_looks + 1 : 0;
    std::this_thread::sleep_for(kLook);  // for the daemon's pending work
    return equal_looks >= kEqualLooks;
  };
  CHECK(e2e::Eventually(at_rest, kClientPatience));
  site.Kill();
  const Found found = Fsck("--json");
  INFO(found.said);
  CHECK(found.exit_status == 0);
  const nlohmann::json report = ReportOf(found.said);
  const uint64_t known =
      report.value("used_bytes", uint64_t{0}) + report.value("label_bytes", uint64_t{0});
  CHECK(held == known);
  leaked_blocks_ += (std::max(held, known) - known) / kBlockBytes;
}

Figures Rig::Sum() const {
  Figures sum{.cycles = cycles_,
              .fsck_runs = checks_,
              .g3_evictions = g3_evictions_,
              .leaked_blocks = leaked_blocks_,
              .ready_ms = ready_ms_};
  for (uint32_t client = 0; client < options_.clients; ++client) {
    const ClientState& state = state_->clients[client];
    sum.checked += state.checked;
    sum.survived += state.survived;
    sum.operations += state.puts + state.durable_puts + state.gets + state.lookups +
                      state.acquires + state.deletes;
    sum.durable_puts += state.durable_puts;
    sum.wrong += state.wrong;
    sum.lost += state.lost;
    sum.hung += state.hung;
    sum.slowest_call_ms =
        std::max(sum.slowest_call_ms, static_cast<double>(state.slowest_us) / 1e3);
  }
  std::sort(sum.ready_ms.begin(), sum.ready_ms.end());
  return sum;
}

void Figures::Add(const Figures& other) {
  for (uint64_t Figures::*const count :
       {&Figures::cycles, &Figures::fsck_runs, &Figures::checked, &Figures::survived,
        &Figures::operations, &Figures::durable_puts, &Figures::g3_evictions, &Figures::wrong,
        &Figures::lost, &Figures::hung, &Figures::leaked_blocks}) {
    this->*count += other.*count;
  }
  slowest_call_ms = std::max(slowest_call_ms, other.slowest_call_ms);
  ready_ms.insert(ready_ms.end(), other.ready_ms.begin(), other.ready_ms.end());
  std::sort(ready_ms.begin(), ready_ms.end());
}

std::string Figures::ToString() const {
  const auto ready = [this](double share) {
    return ready_ms[static_cast<size_t>(share * static_cast<double>(ready_ms.size() - 1))];
  };
  return absl::StrFormat(
      "cycles %d | fsck %d | operations %d | durable puts %d | keys checked %d | had to survive, "
      "and did %d "
      "| evictions of G3 %d | wrong %d | lost %d | hung %d | leaked blocks %d "
      "| ready ms p50 %.0f, p99 %.0f, max %.0f | slowest call %.0f ms",
      cycles, fsck_runs, operations, durable_puts, checked, survived, g3_evictions, wrong, lost,
      hung, leaked_blocks, ready(0.5), ready(0.99), ready(1), slowest_call_ms);
}

void Rig::Judge() const {
  for (uint32_t client = 0; client < options_.clients; ++client) {
    const ClientState& state = state_->clients[client];
    INFO("seed " << options_.seed << ", client " << client << ": " << state.first_failure.data());
    const bool failed = state.wrong + state.lost + state.hung > 0;
    INFO((failed && site.running() ? site.Status().ShortDebugString() : std::string())
         << (failed ? site.Log() : std::string()));
    REQUIRE(state.wrong == 0);
    REQUIRE(state.lost == 0);
    REQUIRE(state.hung == 0);
  }
}

}  // namespace kvkeep::crash
