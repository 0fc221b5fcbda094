# KVKEEP_PORTABLE: binaries for glibc 2.34 and GCC 11's libstdc++ (GLIBCXX_3.4.29) or later, which
# the wheel is made of (tools/wheel). Debian 12's libraries of C++ ask for a later libstdc++ where
# they wait for a condition variable. So RocksDB comes from Debian's archive, spdlog is compiled in,
# and each binary has a wait of its own (gcc11_wait.cc). curl and zmq come from archives with few
# dependencies (tools/portable-libraries).
option(KVKEEP_PORTABLE "Build what runs with glibc 2.34 and GCC 11's libstdc++" OFF)

set(KVKEEP_CURL PkgConfig::curl)
set(KVKEEP_ROCKSDB RocksDB::rocksdb-shared)
set(KVKEEP_SPDLOG spdlog::spdlog)
set(KVKEEP_ZMQ PkgConfig::zmq)
set(KVKEEP_OLD_WAIT "")
if(NOT KVKEEP_PORTABLE)
  return()
endif()

set(KVKEEP_PORTABLE_LIBRARIES ${CMAKE_SOURCE_DIR}/build/portable-libraries CACHE PATH
    "Archives of curl and zmq, made by tools/portable-libraries")
foreach(name curl zmq)
  if(NOT EXISTS ${KVKEEP_PORTABLE_LIBRARIES}/lib/lib${name}.a)
    message(FATAL_ERROR "KVKEEP_PORTABLE: ${KVKEEP_PORTABLE_LIBRARIES} has no lib/lib${name}.a; "
                        "run tools/portable-libraries")
  endif()
endforeach()
find_package(ZLIB REQUIRED)
set(KVKEEP_CURL ${KVKEEP_PORTABLE_LIBRARIES}/lib/libcurl.a OpenSSL::SSL OpenSSL::Crypto ZLIB::ZLIB)
set(KVKEEP_ROCKSDB RocksDB::rocksdb)
set(KVKEEP_SPDLOG spdlog::spdlog_header_only)
set(KVKEEP_ZMQ ${KVKEEP_PORTABLE_LIBRARIES}/lib/libzmq.a)
add_library(kvkeep_old_wait OBJECT ${CMAKE_SOURCE_DIR}/cmake/gcc11_wait.cc)
set(KVKEEP_OLD_WAIT $<TARGET_OBJECTS:kvkeep_old_wait>)
