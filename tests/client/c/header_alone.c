// kvkeep.h needs nothing before it in C99.
#include <kvkeep.h>

int header_alone(void);
int header_alone(void) { return KVKEEP_ABI_VERSION; }
