// kvkeep.h needs nothing before it in C++11.
#include <kvkeep.h>

int header_alone_in_cpp() { return KVKEEP_ABI_VERSION; }
