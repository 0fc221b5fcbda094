// kvkeep_kv.h, and with it kvkeep_gpu.h and kvkeep.h, needs nothing before it in C++11; nor does
// kvkeep_pin.h and kvkeep_watch.h.
#include <kvkeep_kv.h>
#include <kvkeep_pin.h>
#include <kvkeep_watch.h>

int header_alone_in_cpp() { return KVKEEP_ABI_VERSION; }
