// libFuzzer's entry; KVKEEP_FUZZ_TARGET is one of target.h.
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvkeep::KVKEEP_FUZZ_TARGET.run({data, size});
  return 0;
}
