// libFuzzer's entry: any bytes are a script (script.h).
#include "tests/fuzz/script.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvkeep::RunScript({data, size});
  return 0;
}
