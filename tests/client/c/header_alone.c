// kvkeep_kv.h, and with it kvkeep_gpu.h and kvkeep.h, needs nothing before it in C99.
#include <kvkeep_kv.h>
#include <kvkeep_pin.h>
#include <kvkeep_watch.h>

int header_alone(void);
int header_alone(void) { return KVKEEP_ABI_VERSION; }
