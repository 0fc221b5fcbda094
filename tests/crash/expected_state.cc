#include "tests/crash/expected_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tiers/base/check.h"
#include "tiers/base/unique_fd.h"

namespace kvkeep::crash {

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "they are shared by processes");

ExpectedState::ExpectedState(const std::string& path, bool make) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600));
  KVKEEP_CHECK(fd.valid());
  KVKEEP_CHECK(!make || ftruncate(fd.get(), sizeof(Shared)) == 0);
  void* const at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  KVKEEP_CHECK(at != MAP_FAILED);
  shared_ = static_cast<Shared*>(at);  // a new file's zeros are its fields' first values
}

ExpectedState::~ExpectedState() { munmap(shared_, sizeof(Shared)); }

}  // namespace kvkeep::crash
