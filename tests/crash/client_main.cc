// A client of the crash tests, for as many lives of the daemon as its test wants:
//   crash_client STATE_FILE ENDPOINT CLIENT CLIENTS KEYS SEED
// Even clients come by gRPC, odd ones by the local path.
#include <unistd.h>

#include <cstdlib>

#include "tests/crash/load.h"

using kvkeep::crash::Phase;

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const auto number = [argv](int i) { return std::strtoull(argv[i], nullptr, 10); };
  const kvkeep::crash::ExpectedState state = kvkeep::crash::ExpectedState::Open(argv[1]);
  kvkeep::crash::LoadOptions options{.endpoint = argv[2],
                                     .client = static_cast<uint32_t>(number(3)),
                                     .clients = static_cast<uint32_t>(number(4)),
                                     .keys = static_cast<uint32_t>(number(5)),
                                     .seed = number(6)};
  options.path = options.client % 2 == 0 ? kvkeep::client::PathChoice::kGrpc
                                         : kvkeep::client::PathChoice::kLocal;
  kvkeep::crash::Load load(options, &*state);
  std::atomic<uint32_t>& done = state->clients[options.client].turn;
  for (uint32_t turn = 0;;) {
    const bool news = state->turn != turn;
    turn = state->turn;
    const Phase phase = state->phase;
    if (phase == Phase::kEnd) return 0;
    if (phase == Phase::kCheck && news) load.Check(turn);
    if (phase == Phase::kLoad) load.Step();
    if (phase != Phase::kLoad && !news) usleep(500);  // until the test goes on
    done = turn;
  }
}
