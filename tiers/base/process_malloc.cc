// How malloc behaves in kvkeep's own programs: jemalloc's settings, read before main(). Linked as
// an object by the programs that want it; the library takes glibc's place by being linked.
//
// Why not glibc's: a small allocation may have to sort thousands of blocks that others freed before
// (0.3 ms, seen under the store's lock), and the gRPC path's megabytes are given back to the kernel
// and faulted in anew with every message.
extern "C" {

// arenas: bounded, whatever the number of cores. decay: pages are kept for the next message, for so
// long; what is kept is no part of limits.call_memory, so a flood of calls leaves little behind
// (tests/e2e/h2_flood_test.py). background_thread: they are given back by nobody who serves.
extern const char* malloc_conf;
const char* malloc_conf =
    "narenas:16,background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0";
}
