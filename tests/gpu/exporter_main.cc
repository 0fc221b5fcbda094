// A process with GPU memory, for tests of handles between processes. Reads a line at a time from
// the socket that is its standard input, executes it, and answers "ok ..." or the error:
//
//   alloc BYTES SEED   new memory that holds Pattern(BYTES, SEED)     ok HANDLE (in hexadecimal)
//   vmm BYTES SEED     the same of cuMemCreate                        ok, and a descriptor
//   holds SEED         whether the memory holds Pattern(BYTES, SEED)  ok yes | ok no
//   free               gives it back                                  ok
//
// It knows nothing of kvkeepd: to the driver it is like an engine's worker.
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver.h"
#include "gpu/open_device.h"
#include "tests/gpu/descriptor_line.h"
#include "tests/gpu/pattern.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

class Worker {
 public:
  absl::Status Start() {
    KVKEEP_ASSIGN_OR_RETURN(OpenedDevice opened, OpenFirstDevice());
    driver_ = std::move(opened.driver);
    device_ = opened.device;
    stream_ = opened.stream;
    return absl::OkStatus();
  }

  // Returns the answer's words after "ok".
  absl::StatusOr<std::string> Do(const std::string& line, UniqueFd* to_send) {
    std::istringstream in(line);
    std::string word;
    in >> word;
    if (word == "alloc") return Alloc(&in);
    if (word == "vmm") return AllocVmm(&in, to_send);
    if (word == "holds") return Holds(&in);
    if (word == "free") return Free();
    return absl::InvalidArgumentError(absl::StrCat("not understood: ", line));
  }

 private:
  absl::StatusOr<std::string> Alloc(std::istringstream* in) {
    int seed = 0;
    *in >> bytes_ >> seed;
    KVKEEP_RETURN_IF_ERROR(driver_->MemAlloc(&address_, static_cast<size_t>(bytes_)));
    KVKEEP_RETURN_IF_ERROR(Fill(seed));
    CUipcMemHandle handle = {};
    KVKEEP_RETURN_IF_ERROR(driver_->IpcGetMemHandle(&handle, address_));
    return absl::StrCat(" ", absl::BytesToHexString({handle.reserved, sizeof(handle.reserved)}));
  }

  absl::StatusOr<std::string> AllocVmm(std::istringstream* in, UniqueFd* to_send) {
    int seed = 0;
    *in >> bytes_ >> seed;
    const size_t bytes = bytes_;
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle memory = 0;
    KVKEEP_RETURN_IF_ERROR(driver_->MemCreate(&memory, bytes, &properties, 0ull));
    KVKEEP_RETURN_IF_ERROR(driver_->MemAddressReserve(&address_, bytes, size_t{0}, 0ull, 0ull));
    KVKEEP_RETURN_IF_ERROR(driver_->MemMap(address_, bytes, size_t{0}, memory, 0ull));
    const CUmemAccessDesc access = {.location = properties.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    KVKEEP_RETURN_IF_ERROR(driver_->MemSetAccess(address_, bytes, &access, size_t{1}));
    KVKEEP_RETURN_IF_ERROR(Fill(seed));
    int descriptor = -1;
    KVKEEP_RETURN_IF_ERROR(driver_->MemExportToShareableHandle(
        static_cast<void*>(&descriptor), memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0ull));
    *to_send = UniqueFd(descriptor);
    KVKEEP_RETURN_IF_ERROR(driver_->MemRelease(memory));
    return std::string();
  }

  absl::StatusOr<std::string> Holds(std::istringstream* in) {
    int seed = 0;
    *in >> seed;
    std::vector<std::byte> now(bytes_);
    KVKEEP_RETURN_IF_ERROR(driver_->MemcpyDtoHAsync(static_cast<void*>(now.data()), address_,
                                                    static_cast<size_t>(bytes_), stream_));
    KVKEEP_RETURN_IF_ERROR(driver_->StreamSynchronize(stream_));
    return now == Pattern(bytes_, seed) ? " yes" : " no";
  }

  absl::StatusOr<std::string> Free() {
    KVKEEP_RETURN_IF_ERROR(driver_->MemFree(std::exchange(address_, 0)));
    return std::string();
  }

  absl::Status Fill(int seed) {
    const std::vector<std::byte> pattern = Pattern(bytes_, seed);
    KVKEEP_RETURN_IF_ERROR(driver_->MemcpyHtoDAsync(
        address_, static_cast<const void*>(pattern.data()), pattern.size(), stream_));
    return driver_->StreamSynchronize(stream_);
  }

  std::unique_ptr<GpuDriver> driver_;
  CUdevice device_ = 0;
  CUstream stream_ = nullptr;
  CUdeviceptr address_ = 0;
  uint64_t bytes_ = 0;
};

int Run() {
  Worker worker;
  const absl::Status started = worker.Start();
  while (true) {
    UniqueFd none;
    const std::string line = ReceiveLine(STDIN_FILENO, &none);
    if (line.empty()) return 0;
    UniqueFd to_send;
    const absl::StatusOr<std::string> done =
        started.ok() ? worker.Do(line, &to_send) : absl::StatusOr<std::string>(started);
    const std::string answer = done.ok() ? absl::StrCat("ok", *done) : done.status().ToString();
    if (!SendLine(STDIN_FILENO, answer, to_send.get())) return 1;
  }
}

}  // namespace
}  // namespace kvkeep

int main() { return kvkeep::Run(); }
