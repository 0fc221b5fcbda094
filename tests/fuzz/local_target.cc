// Any bytes are a script (script.h).
#include "tests/fuzz/script.h"
#include "tests/fuzz/target.h"

namespace kvkeep {
namespace {

void RunLocal(std::span<const uint8_t> input) { RunScript(input); }

}  // namespace

const FuzzTarget kLocalTarget{.name = "local", .run = RunLocal, .seeds = SeedScripts};

}  // namespace kvkeep
