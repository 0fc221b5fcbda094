// std::condition_variable::wait as GCC 11 defines it, for binaries that run with its libstdc++
// (KVKEEP_PORTABLE). GCC 12 gave the function another version, GLIBCXX_3.4.30, and it is the only
// one of that version that our code and the archives in it call. Defined in the binary, it asks
// libstdc++ for nothing.
#include <condition_variable>

namespace std {

void condition_variable::wait(unique_lock<mutex>& lock) { _M_cond.wait(*lock.mutex()); }

}  // namespace std
