# Every outside library kvkeep links, all from Debian 12's packages (tools/install-deps).
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(absl REQUIRED CONFIG)
find_package(RocksDB REQUIRED CONFIG)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(spdlog REQUIRED CONFIG)
find_package(yaml-cpp REQUIRED CONFIG)
find_package(nlohmann_json REQUIRED CONFIG)

find_package(PkgConfig REQUIRED)
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
if(NOT KVKEEP_SANITIZE)
  pkg_check_modules(jemalloc REQUIRED IMPORTED_TARGET jemalloc)
endif()

if(KVKEEP_BUILD_GRPC OR NOT DEFINED KVKEEP_BUILD_GRPC)
  find_package(Protobuf REQUIRED)  # module mode: Debian ships no protobuf-config.cmake
  find_package(gRPC REQUIRED CONFIG)
  find_package(prometheus-cpp REQUIRED CONFIG COMPONENTS core)
  find_package(civetweb QUIET CONFIG)
  find_program(KVKEEP_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
endif()
