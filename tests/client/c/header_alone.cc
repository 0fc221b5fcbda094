// In C++11, kvkeep_kv.h, which includes kvkeep_gpu.h and kvkeep.h, needs no other header before it;
// nor do kvkeep_pin.h and kvkeep_watch.h.
#include <kvkeep_kv.h>
#include <kvkeep_pin.h>
#include <kvkeep_watch.h>

int header_alone_in_cpp() { return KVKEEP_ABI_VERSION; }
