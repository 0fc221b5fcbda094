#include "client/grpc/grpc_clash.h"

#include <absl/strings/str_cat.h>
#include <dlfcn.h>
#include <grpc/grpc.h>

namespace kvkeep::client {
namespace {

// Unique names of gRPC 1.51 that later versions have too. A gRPC without them is not judged.
constexpr const char* kUniqueNames[] = {
    "_ZZN9grpc_core10HPackTable17GetStaticMementosEvE15static_mementos",
    "_ZN9grpc_core19NoDestructSingletonINS_20GlobalStatsCollectorEE6value_E",
    "_ZZN9grpc_core14ParsedMetadataI19grpc_metadata_batchE11EmptyVTableEvE6vtable",
};

absl::Status CheckNow() {
  Dl_info ours{};
  if (dladdr(reinterpret_cast<void*>(&grpc_init), &ours) == 0) return absl::OkStatus();
  void* const library = dlopen(ours.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return absl::OkStatus();  // gRPC is linked into the program itself
  absl::Status status;
  for (const char* name : kUniqueNames) {
    void* object = dlsym(RTLD_DEFAULT, name);  // what the whole program sees comes first
    if (object == nullptr) object = dlsym(library, name);
    Dl_info found{};
    if (object == nullptr || dladdr(object, &found) == 0 || found.dli_fbase == ours.dli_fbase)
      continue;
    status = absl::FailedPreconditionError(absl::StrCat(
        "a second gRPC in this process clashes with ours: connect by the local path, or take "
        "kvkeep from its wheel (",
        ours.dli_fname, " beside ", found.dli_fname, ")"));
    break;
  }
  dlclose(library);
  return status;
}

}  // namespace

absl::Status CheckGrpcClash() {
  // What the loader has bound stays bound.
  static const absl::Status status = CheckNow();
  return status;
}

}  // namespace kvkeep::client
