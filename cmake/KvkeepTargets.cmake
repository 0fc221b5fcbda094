# Sanitized builds leave out tests that allow it (PLAIN, FIGURES below), except with --thorough.
set(KVKEEP_FEWER_TESTS OFF)
if(KVKEEP_SANITIZE AND NOT KVKEEP_SANITIZE_ALL)
  set(KVKEEP_FEWER_TESTS ON)
endif()

# The three kinds of target. Each lists its dependencies, so the linker checks the layering.
include(CMakeParseArguments)

# kvkeep_library(NAME SRCS a.cc ... DEPS other targets ...)
function(kvkeep_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${NAME} STATIC ${ARG_SRCS})
    target_include_directories(${NAME} PUBLIC ${CMAKE_SOURCE_DIR})
    target_link_libraries(${NAME} PUBLIC ${ARG_DEPS})
    kvkeep_use_pch(${NAME})
    if(KVKEEP_TSAN) # only libraries that its tests need
      set_target_properties(${NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  else()
    add_library(${NAME} INTERFACE)
    target_include_directories(${NAME} INTERFACE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${NAME} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

# kvkeep_binary(NAME SRCS main.cc ... DEPS ...)
function(kvkeep_binary NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE ${KVKEEP_OLD_WAIT} ${ARG_DEPS})
  kvkeep_use_pch(${NAME})
endfunction()

# kvkeep_test(NAME [ONE_THREAD] [TIMES] [FIGURES] [PLAIN] SRCS x_test.cc ... DEPS ... [CASES spec] [LABELS ...]
#             [TIMEOUT s] [PROCESSORS n]): one Catch2 binary, one ctest entry. Without the label e2e it
# has the label unit, and the target unit_tests builds it: these run under emulation too.
# ONE_THREAD: the test has no second thread, so the thread sanitizer's preset leaves it out.
add_custom_target(unit_tests)
function(kvkeep_test NAME)
  cmake_parse_arguments(ARG "ONE_THREAD;TIMES;FIGURES;PLAIN" "CASES;TIMEOUT;PROCESSORS" "SRCS;DEPS;LABELS" ${ARGN})
  if((ARG_ONE_THREAD AND KVKEEP_TSAN) OR (ARG_PLAIN AND KVKEEP_FEWER_TESTS))
    return()
  endif()
  kvkeep_test_program(${NAME} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS})
  set(FLAGS "")
  foreach(FLAG TIMES FIGURES PLAIN)
    if(ARG_${FLAG})
      list(APPEND FLAGS ${FLAG})
    endif()
  endforeach()
  kvkeep_left_out(${NAME} LEFT_OUT)
  if(NOT "e2e" IN_LIST ARG_LABELS AND NOT LEFT_OUT STREQUAL "~*")
    add_dependencies(unit_tests ${NAME})
    list(APPEND ARG_LABELS unit)
  endif()
  kvkeep_test_entry(${NAME} ${NAME} ${FLAGS} CASES ${ARG_CASES} TIMEOUT ${ARG_TIMEOUT}
                    PROCESSORS ${ARG_PROCESSORS} LABELS ${ARG_LABELS})
endfunction()

# kvkeep_left_out(PROGRAM RESULT): what to append to a program's cases where its tests are emulated.
function(kvkeep_left_out PROGRAM RESULT)
  set(CASES "")
  if(CMAKE_CROSSCOMPILING)
    file(STRINGS ${CMAKE_SOURCE_DIR}/tests/aarch64_left_out LINES REGEX "^${PROGRAM} ")
    foreach(LINE IN LISTS LINES)
      string(REGEX MATCH "^${PROGRAM} (\"[^\"]*\"|[^ ]+)" LINE "${LINE}")
      string(APPEND CASES "~${CMAKE_MATCH_1}")
    endforeach()
  endif()
  set(${RESULT} "${CASES}" PARENT_SCOPE)
endfunction()

# kvkeep_test_program(NAME SRCS ... DEPS ...): the binary alone.
function(kvkeep_test_program NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE kvkeep_catch_main ${ARG_DEPS})
  target_compile_options(${NAME} PRIVATE ${KVKEEP_LIGHT_OPTIMISATION})
  kvkeep_use_pch(${NAME} _test)
endfunction()

# kvkeep_test_entry(NAME PROGRAM [CASES spec] [TIMES] [FIGURES] [PLAIN] [LABELS ...] [TIMEOUT s]
# [PROCESSORS n]): one ctest entry, of these cases of a program; [#x_test] selects the cases of
# x_test.cc. By default an entry mostly waits, and two share a core (tools/test). An entry that
# computes all the time, or must not be disturbed, has PROCESSORS 2 and a core of its own. These
# begin first, as later two places would rarely be free at once. Sanitized builds judge no times,
# so there the setting has no effect. TIMES: cases tagged [times] judge times, and are an entry of
# their own that runs alone, NAME_times. FIGURES: sanitized builds leave out cases tagged [figures]:
# whole traces or hundreds of runs, which take a sanitizer minutes and show nothing new. PLAIN:
# sanitized builds leave out all of it. With KVKEEP_SANITIZE_ALL (tools/test --thorough) they leave
# out neither.
function(kvkeep_test_entry NAME PROGRAM)
  cmake_parse_arguments(ARG "TIMES;FIGURES;PLAIN" "CASES;TIMEOUT;PROCESSORS" "LABELS" ${ARGN})
  if(ARG_PLAIN AND KVKEEP_FEWER_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900) # ends what hangs, also where ten others wait for each CPU
    if(KVKEEP_SANITIZE OR CMAKE_CROSSCOMPILING) # some three times the work; qemu, ten times
      set(ARG_TIMEOUT 2700)
    endif()
  endif()
  kvkeep_left_out(${PROGRAM} LEFT_OUT)
  string(APPEND ARG_CASES "${LEFT_OUT}")
  set(ENTRIES ${NAME})
  if(ARG_TIMES AND NOT KVKEEP_SANITIZE)
    list(APPEND ENTRIES ${NAME}_times)
    add_test(NAME ${NAME}_times COMMAND ${PROGRAM} "-#" ${ARG_CASES}[times] WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    kvkeep_run_alone(${NAME}_times)
    string(APPEND ARG_CASES ~[times])
  endif()
  if(ARG_FIGURES AND KVKEEP_FEWER_TESTS)
    string(APPEND ARG_CASES ~[figures])
  endif()
  add_test(NAME ${NAME} COMMAND ${PROGRAM} "-#" ${ARG_CASES} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${ENTRIES} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  if(ARG_PROCESSORS AND NOT KVKEEP_SANITIZE)
    set_tests_properties(${ENTRIES} PROPERTIES PROCESSORS ${ARG_PROCESSORS} COST 500)
  endif()
  if(ARG_LABELS)
    set_property(TEST ${ENTRIES} APPEND PROPERTY LABELS ${ARG_LABELS})
  endif()
endfunction()

# kvkeep_test_large_pages(PROGRAM [CASES spec]): entries PROGRAM_16k and PROGRAM_64k, of a program's
# cases on a kernel whose pages have that size, as far as a library can be one
# (tests/fakes/large_pages.cc).
function(kvkeep_test_large_pages PROGRAM)
  cmake_parse_arguments(ARG "" "CASES" "" ${ARGN})
  if(KVKEEP_SANITIZE)
    return()
  endif()
  foreach(KIB 16 64)
    math(EXPR BYTES "1024 * ${KIB}")
    kvkeep_test_entry(${PROGRAM}_${KIB}k ${PROGRAM} CASES ${ARG_CASES})
    set_tests_properties(${PROGRAM}_${KIB}k PROPERTIES ENVIRONMENT
      "LD_PRELOAD=$<TARGET_FILE:kvkeep_large_pages>;KVKEEP_FAKE_PAGE_BYTES=${BYTES}")
    add_dependencies(${PROGRAM} kvkeep_large_pages)
  endforeach()
endfunction()

# Test cases and the verbs of the CLI are compiled more often than they are run, so they are
# optimised less than the code that they test and call, and have no instrumentation for fuzz
# targets.
set(KVKEEP_LIGHT_OPTIMISATION $<$<CONFIG:Release>:-Og>)
if(KVKEEP_SANITIZE)
  set(KVKEEP_LIGHT_OPTIMISATION -O0)
  if(KVKEEP_SANITIZE MATCHES fuzzer-no-link)
    list(APPEND KVKEEP_LIGHT_OPTIMISATION -fno-sanitize=fuzzer-no-link)
  endif()
endif()

# Code above the tiers mostly waits when it runs. In the address sanitizer's build it is not
# optimised, as -O1 takes clang two to three times as long.
set(KVKEEP_ABOVE_TIERS "")
if(KVKEEP_SANITIZE AND NOT KVKEEP_TSAN)
  set(KVKEEP_ABOVE_TIERS -O0)
endif()

# kvkeep_run_alone(TEST ...): tests that judge times. Sanitized builds judge none, so there they run
# beside each other. The label makes tools/test build nothing meanwhile. kvkeep_run_serially(TEST
# ...): tests that take all memory or disk, with no other test beside them. Builds meanwhile have
# the lowest priority, and do not matter.
function(kvkeep_run_alone)
  kvkeep_run_serially(${ARGN})
  if(NOT KVKEEP_SANITIZE)
    set_property(TEST ${ARGN} APPEND PROPERTY LABELS alone)
  endif()
endfunction()
function(kvkeep_run_serially)
  if(NOT KVKEEP_SANITIZE)
    set_tests_properties(${ARGN} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# kvkeep_compile_together(TARGET ...): compiles sixteen sources at a time, as one. For code that is
# run rarely and whose headers take nearly all of the compiler's time (CLI11, JSON). A first build
# compiles all other targets this way too (CMAKE_UNITY_BUILD): names in a
# target's unnamed namespaces must differ.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
function(kvkeep_compile_together)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON)
endfunction()

# The precompiled header of the current folder's targets: kvkeep_pch (the standard library and
# common parts of Abseil) or kvkeep_grpc_pch (proto/CMakeLists.txt). Tests have their own of each,
# with Catch2 in it (suffix _test). A header fits only files with its own optimisation: all but
# kvkeep_pch are for code above the tiers.
set(KVKEEP_PCH kvkeep_pch)
function(kvkeep_use_pch NAME)
  target_compile_options(${NAME} PRIVATE ${Threads_CFLAGS})
  if(TARGET kvkeep_pch)
    target_precompile_headers(${NAME} REUSE_FROM ${KVKEEP_PCH}${ARGN})
    if(NOT "${KVKEEP_PCH}${ARGN}" STREQUAL kvkeep_pch)
      target_compile_options(${NAME} PRIVATE ${KVKEEP_ABOVE_TIERS})
    endif()
    target_link_libraries(${NAME} PRIVATE kvkeep_pch_deps)
  endif()
endfunction()

add_library(kvkeep_pch_deps INTERFACE)
target_link_libraries(kvkeep_pch_deps INTERFACE Threads::Threads absl::status absl::statusor
                      absl::strings absl::synchronization absl::any_invocable
                      absl::flat_hash_map absl::inlined_vector absl::span absl::str_format)

# kvkeep_add_pch(NAME HEADER DEPS...): a precompiled header, cmake/HEADER, for kvkeep_use_pch.
function(kvkeep_add_pch NAME HEADER)
  add_library(${NAME} STATIC ${CMAKE_SOURCE_DIR}/cmake/pch.cc)
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${NAME} PUBLIC kvkeep_pch_deps ${ARGN})
  target_precompile_headers(${NAME} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${HEADER})
  if(NOT NAME STREQUAL kvkeep_pch)
    target_compile_options(${NAME} PRIVATE ${KVKEEP_ABOVE_TIERS})
  endif()
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    set_target_properties(${NAME} PROPERTIES CXX_COMPILER_LAUNCHER
      "sh;${CMAKE_SOURCE_DIR}/cmake/fresh_pch.sh;${CMAKE_CXX_COMPILER_LAUNCHER}")
  endif()
endfunction()
kvkeep_add_pch(kvkeep_pch pch.h)
