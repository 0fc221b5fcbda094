# Compiler settings shared by every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# One setting for libraries and executables, so that they share one precompiled header. -pthread:
# re2, a dependency of gRPC, needs it, and a precompiled header fits only equal flags.
add_compile_options(-fPIC -pthread)
add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie>)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(KVKEEP_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, e.g. address,undefined")
option(KVKEEP_SANITIZE_ALL "Sanitized builds run every test that can be run there" OFF)

add_compile_options(-Wall -Wextra -Werror $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
                    -Wno-missing-field-initializers -fno-omit-frame-pointer)
# Checks of kvkeep's invariants stay on in release (tiers/base/check.h), so NDEBUG does not affect
# them.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # Hardening; tests/hygiene checks the binaries for it. Some distributions' compilers already set
  # _FORTIFY_SOURCE: undefine it first to avoid a warning.
  add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -fstack-protector-strong
                      -fstack-clash-protection -ftrivial-auto-var-init=zero)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    add_compile_options(-fcf-protection=full)
  endif()
  add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
  # Failed checks print paths without the build machine's directories, so two builds are equal.
  add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wthread-safety -Werror=thread-safety)
endif()
find_program(KVKEEP_LLD ld.lld)  # a tenth of GNU ld's time, a hundred times
if(KVKEEP_LLD)
  add_link_options(-fuse-ld=lld)
endif()
set(KVKEEP_TSAN OFF)
if(KVKEEP_SANITIZE STREQUAL "thread")
  set(KVKEEP_TSAN ON)
endif()
if(KVKEEP_SANITIZE)
  add_compile_options(-fsanitize=${KVKEEP_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${KVKEEP_SANITIZE})
  add_compile_definitions(KVKEEP_SANITIZED)  # for tests: times and memory say nothing there
  # A branch at each access through a pointer takes half of the compiler's time. The address
  # sanitizer finds what null and object-size would find; only KVKEEP_SANITIZE_ALL checks alignment.
  if(KVKEEP_SANITIZE MATCHES undefined AND NOT KVKEEP_SANITIZE_ALL)
    add_compile_options(-fno-sanitize=null,object-size,alignment)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_link_options(-fsanitize-link-c++-runtime)  # of programs in C, for libraries in C++
    link_libraries(stdc++)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns falsely about moved absl::InlinedVector and, under sanitizers, about std::function.
  # clang's own analysis runs in the asan preset.
  add_compile_options(-Wno-uninitialized -Wno-maybe-uninitialized)
  if(KVKEEP_SANITIZE)  # and about sizes that its own checks made it think of
    add_compile_options(-Wno-stringop-overflow -Wno-array-bounds)
  endif()
endif()

find_program(KVKEEP_CCACHE ccache)
if(KVKEEP_CCACHE)
  # ccache's manual requires these sloppiness settings with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${KVKEEP_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  else()
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()
