// StoreLock: that a thread holds the lock of a store, as clang's thread-safety analysis sees it.
//
// One lock, which Chunks owns (chunks.h), protects the state of all objects of a store. The
// analysis compares expressions: it cannot know that the Chunks of one object and those of another
// are the same. So methods and members name this role instead. A Section has it while it lives.
// The analysis does not tell two stores of one process apart.
#pragma once

#include <absl/base/thread_annotations.h>

namespace kvkeep::store_internal {

class ABSL_LOCKABLE StoreLock {};
inline StoreLock store_lock;

}  // namespace kvkeep::store_internal

// Marks a method or a lambda whose caller holds the lock.
#define STORE_LOCKED ABSL_EXCLUSIVE_LOCKS_REQUIRED(::kvkeep::store_internal::store_lock)
// Marks a member that the lock protects.
#define STORE_GUARDED ABSL_GUARDED_BY(::kvkeep::store_internal::store_lock)
