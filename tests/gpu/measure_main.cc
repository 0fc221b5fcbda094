// Measures a GPU, its driver and its bus, for tools/gpu-check. One JSON object on stdout.
//
//   gpu_measure export BYTES              holds GPU memory: prints its handle in hexadecimal, then
//                                         waits for the end of its standard input
//   gpu_measure run HANDLE BYTES ROUNDS   measures, with the handle of such a process; BYTES are
//                                         moved a copy; every figure has ROUNDS copies
//
// Every method moves the same bytes in the same round as the plain copy that it is compared with:
// one asynchronous copy between registered host memory and the device, in one piece.
#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "gpu/copy_submit.h"
#include "gpu/driver.h"
#include "gpu/open_device.h"
#include "tiers/base/status_macros.h"
#include "tiers/base/unique_fd.h"
#include "tiers/base/units.h"
#include "tiers/host/kernel_facts.h"

namespace kvkeep {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::steady_clock;

constexpr std::array<uint64_t, 6> kRunSizes = {4 * kKiB,   16 * kKiB, 64 * kKiB,
                                               256 * kKiB, 1 * kMiB,  4 * kMiB};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Returns how long `work` takes, in seconds.
absl::StatusOr<double> Time(const std::function<absl::Status()>& work) {
  const auto began = steady_clock::now();
  KVKEEP_RETURN_IF_ERROR(work());
  return std::chrono::duration<double>(steady_clock::now() - began).count();
}

// Shared memory as the arena's, with pages of one kind. Touched.
struct HostMemory {
  std::byte* at = nullptr;
  uint64_t bytes = 0;

  static absl::StatusOr<HostMemory> Map(uint64_t bytes, unsigned flags, int advice) {
    const UniqueFd file(memfd_create("gpu-measure", MFD_CLOEXEC | flags));
    if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
      return absl::ErrnoToStatus(errno, "memfd");
    }
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (at == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap");
    // A kernel without huge pages refuses to turn them off.
    if (madvise(at, bytes, advice) != 0 && advice == MADV_HUGEPAGE) {
      const absl::Status refused = absl::ErrnoToStatus(errno, "madvise");
      munmap(at, bytes);
      return refused;
    }
    std::memset(at, 1, bytes);
    return HostMemory{static_cast<std::byte*>(at), bytes};
  }
  void Unmap() const { munmap(at, bytes); }
};

class Measurer {
 public:
  Measurer(uint64_t bytes, int rounds) : bytes_(bytes), rounds_(rounds) {}

  absl::Status Start() {
    KVKEEP_ASSIGN_OR_RETURN(OpenedDevice opened, OpenFirstDevice());
    driver_ = std::move(opened.driver);
    device_ = opened.device;
    stream_ = opened.stream;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Export() {
    CUdeviceptr memory = 0;
    CUipcMemHandle handle = {};
    KVKEEP_RETURN_IF_ERROR(driver_->MemAlloc(&memory, static_cast<size_t>(bytes_)));
    KVKEEP_RETURN_IF_ERROR(driver_->IpcGetMemHandle(&handle, memory));
    return absl::BytesToHexString({handle.reserved, sizeof(handle.reserved)});
  }

  absl::StatusOr<Json> Run(const std::string& handle) {
    Json result;
    KVKEEP_ASSIGN_OR_RETURN(result["device"], Device());
    result["bytes_a_copy"] = bytes_;
    result["rounds"] = rounds_;
    KVKEEP_ASSIGN_OR_RETURN(result["copies"], Copies());
    KVKEEP_ASSIGN_OR_RETURN(result["handles"], Handles(handle));
    KVKEEP_ASSIGN_OR_RETURN(result["registration"], Registrations());
    return result;
  }

 private:
  absl::StatusOr<Json> Device() {
    std::array<char, 128> name{}, pci{};
    int read_only = 0;
    KVKEEP_RETURN_IF_ERROR(driver_->DeviceGetName(name.data(), int{127}, device_));
    KVKEEP_RETURN_IF_ERROR(driver_->DeviceGetPCIBusId(pci.data(), int{127}, device_));
    KVKEEP_RETURN_IF_ERROR(driver_->DeviceGetAttribute(
        &read_only, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, device_));
    return Json{{"name", name.data()},
                {"pci", pci.data()},
                {"driver", driver_->version()},
                {"batch_copies", driver_->batch_copy_abi() != BatchCopyAbi::kNone},
                {"registers_read_only", read_only != 0}};
  }

  // ---------------------------------------------------------------- copies

  struct Way {
    bool to_gpu = false;
    uint64_t run = 0;  // bytes; runs are adjacent on the host, with gaps on the device
  };

  absl::Status Submit(const Way& way, std::span<const DeviceCopy> copies) {
    return SubmitCopies(*driver_, copies,
                        way.to_gpu ? DeviceCopyWay::kToGpu : DeviceCopyWay::kToHost, stream_)
        .status;
  }
  absl::Status Plain(const Way& way) {
    const DeviceCopy whole = {.device = memory_, .host = host_.at, .bytes = bytes_};
    return Submit(way, {&whole, 1});
  }
  absl::Status Loop(const Way& way) {
    for (uint64_t at = 0; at < bytes_; at += way.run) {
      const DeviceCopy run = {.device = memory_ + 2 * at, .host = host_.at + at, .bytes = way.run};
      KVKEEP_RETURN_IF_ERROR(Submit(way, {&run, 1}));
    }
    return absl::OkStatus();
  }
  absl::Status Batch(const Way& way) {
    std::vector<DeviceCopy> batch;
    for (uint64_t at = 0; at < bytes_; at += way.run) {
      batch.push_back({.device = memory_ + 2 * at, .host = host_.at + at, .bytes = way.run});
      if (batch.size() < kMaxBatchCopies && at + way.run < bytes_) continue;
      KVKEEP_RETURN_IF_ERROR(Submit(way, batch));
      batch.clear();
    }
    return absl::OkStatus();
  }

  using Method = absl::Status (Measurer::*)(const Way&);

  absl::StatusOr<Json> Compare(const Way& way) {
    std::vector<std::pair<const char*, Method>> methods = {{"plain", &Measurer::Plain},
                                                           {"loop", &Measurer::Loop}};
    if (driver_->batch_copy_abi() != BatchCopyAbi::kNone) {
      methods.emplace_back("batch", &Measurer::Batch);
    }
    std::vector<std::vector<double>> gb_s(methods.size());
    for (int round = 0; round <= rounds_; ++round) {
      for (size_t i = 0; i < methods.size(); ++i) {
        KVKEEP_ASSIGN_OR_RETURN(const double seconds, Time([&]() -> absl::Status {
                                  KVKEEP_RETURN_IF_ERROR((this->*methods[i].second)(way));
                                  return driver_->StreamSynchronize(stream_);
                                }));
        // The first round warms up.
        if (round > 0) gb_s[i].push_back(static_cast<double>(bytes_) / seconds / 1e9);
      }
    }
    Json row = {{"direction", way.to_gpu ? "h2d" : "d2h"}, {"run_bytes", way.run}};
    for (size_t i = 0; i < methods.size(); ++i) {
      row[absl::StrCat(methods[i].first, "_gb_s")] = Median(gb_s[i]);
      if (i > 0)
        row[absl::StrCat(methods[i].first, "_of_plain")] = Median(gb_s[i]) / Median(gb_s[0]);
    }
    return row;
  }

  absl::StatusOr<Json> Copies() {
    KVKEEP_ASSIGN_OR_RETURN(host_, HostMemory::Map(bytes_, 0, MADV_NORMAL));
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE;
    const size_t bytes = bytes_;
    KVKEEP_RETURN_IF_ERROR(driver_->MemHostRegister(static_cast<void*>(host_.at), bytes, flags));
    KVKEEP_RETURN_IF_ERROR(driver_->MemAlloc(&memory_, 2 * bytes));
    Json rows = Json::array();
    for (const bool to_gpu : {true, false}) {
      for (const uint64_t run : kRunSizes) {
        if (run > bytes_) continue;
        KVKEEP_ASSIGN_OR_RETURN(Json row, Compare({.to_gpu = to_gpu, .run = run}));
        rows.push_back(std::move(row));
      }
    }
    KVKEEP_RETURN_IF_ERROR(driver_->MemFree(memory_));
    KVKEEP_RETURN_IF_ERROR(driver_->MemHostUnregister(static_cast<void*>(host_.at)));
    host_.Unmap();
    return rows;
  }

  // ---------------------------------------------------------------- handles, registration

  absl::StatusOr<Json> Handles(const std::string& hex) {
    const std::string raw = absl::HexStringToBytes(hex);
    CUipcMemHandle handle = {};
    if (raw.size() != sizeof(handle.reserved)) return absl::InvalidArgumentError("HANDLE");
    std::memcpy(handle.reserved, raw.data(), raw.size());
    std::vector<double> open_us, close_us;
    for (int round = 0; round < 10 * rounds_; ++round) {
      CUdeviceptr memory = 0;
      const unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
      const absl::StatusOr<double> open =
          Time([&] { return driver_->IpcOpenMemHandle(&memory, handle, flags); });
      if (!open.ok()) return Json{{"refused", open.status().ToString()}};
      KVKEEP_ASSIGN_OR_RETURN(const double close,
                              Time([&] { return driver_->IpcCloseMemHandle(memory); }));
      open_us.push_back(*open * 1e6);
      close_us.push_back(close * 1e6);
    }
    return Json{{"open_us", Median(open_us)}, {"close_us", Median(close_us)}};
  }

  Json Registration(const char* pages, unsigned memfd_flags, int advice, bool read_only) {
    Json row = {{"pages", pages}, {"read_only", read_only}};
    std::vector<double> gb_s;
    for (int round = 0; round < rounds_; ++round) {
      absl::StatusOr<HostMemory> memory = HostMemory::Map(bytes_, memfd_flags, advice);
      if (!memory.ok()) {
        row["refused"] = memory.status().ToString();
        return row;
      }
      if (read_only && mprotect(memory->at, memory->bytes, PROT_READ) != 0) {
        row["refused"] = "mprotect";
        return row;
      }
      const unsigned flags =
          CU_MEMHOSTREGISTER_PORTABLE | (read_only ? CU_MEMHOSTREGISTER_READ_ONLY : 0);
      const size_t bytes = memory->bytes;
      void* const at = memory->at;
      // The pages may differ from the requested ones (shmem_enabled).
      row["huge_page_bytes"] = HugePageBytes({{memory->at, bytes}});
      const absl::StatusOr<double> seconds =
          Time([&] { return driver_->MemHostRegister(at, bytes, flags); });
      if (seconds.ok()) (void)driver_->MemHostUnregister(at);
      memory->Unmap();
      if (!seconds.ok()) {
        row["refused"] = seconds.status().ToString();
        return row;
      }
      gb_s.push_back(static_cast<double>(bytes) / *seconds / 1e9);
    }
    row["gb_s"] = Median(gb_s);
    return row;
  }

  absl::StatusOr<Json> Registrations() {
    return Json::array({Registration("4 KiB", 0, MADV_NOHUGEPAGE, false),
                        Registration("THP", 0, MADV_HUGEPAGE, false),
                        Registration("2 MiB", MFD_HUGETLB | MFD_HUGE_2MB, MADV_NORMAL, false),
                        Registration("4 KiB", 0, MADV_NOHUGEPAGE, true)});
  }

  const uint64_t bytes_;
  const int rounds_;
  std::unique_ptr<GpuDriver> driver_;
  CUdevice device_ = 0;
  CUstream stream_ = nullptr;
  HostMemory host_;
  CUdeviceptr memory_ = 0;
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "gpu_measure: %s\n", status.ToString().c_str());
  return 1;
}

int Main(const std::vector<std::string>& arguments) {
  uint64_t bytes = 0;
  int rounds = 1;
  const bool exports = arguments.size() == 2 && arguments[0] == "export";
  const bool runs = arguments.size() == 4 && arguments[0] == "run";
  if ((!exports && !runs) || !absl::SimpleAtoi(arguments[exports ? 1 : 2], &bytes) || bytes == 0 ||
      bytes % (4 * kMiB) != 0 ||
      (runs && (!absl::SimpleAtoi(arguments[3], &rounds) || rounds < 1 || rounds > 1000))) {
    return Fail(absl::InvalidArgumentError(
        "usage: gpu_measure export BYTES | run HANDLE BYTES ROUNDS; BYTES in steps of 4 MiB"));
  }
  Measurer measurer(bytes, rounds);
  if (const absl::Status started = measurer.Start(); !started.ok()) return Fail(started);
  if (exports) {
    const absl::StatusOr<std::string> handle = measurer.Export();
    if (!handle.ok()) return Fail(handle.status());
    std::printf("%s\n", handle->c_str());
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    return 0;
  }
  const absl::StatusOr<Json> result = measurer.Run(arguments[1]);
  if (!result.ok()) return Fail(result.status());
  std::printf("%s\n", result->dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace kvkeep

int main(int argc, char** argv) { return kvkeep::Main({argv + 1, argv + argc}); }
