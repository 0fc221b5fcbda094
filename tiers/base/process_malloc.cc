// Settings of jemalloc for kvkeep's own programs, read before main(). Programs that want it link
// this as an object; the library takes glibc's place by being linked.
//
// Why not glibc's: a small allocation may have to sort thousands of blocks that others freed before
// (0.3 ms, seen under the store's lock), and the gRPC path's megabytes are given back to the kernel
// and faulted in anew with every message.
extern "C" {

// arenas: bounded, whatever the number of cores. decay: how long pages are kept for the next
// message; kept pages are no part of limits.call_memory, so a flood of calls leaves little behind
// (tests/e2e/h2_flood_test.py). background_thread: no serving thread gives them back.
extern const char* malloc_conf;
const char* malloc_conf =
    "narenas:16,background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0";
}
