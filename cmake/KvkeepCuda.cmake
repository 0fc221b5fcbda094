# CUDA's headers for server/gpu and its tests: types and numbers only, nothing of CUDA is linked.
#
#   KVKEEP_GPU  AUTO  the GPU path is built where the headers are found (the default)
#               ON    an error where they are not
#               OFF   not built
#
# The headers are searched below $CUDA_HOME, where tools/install-deps puts them, and in an installed
# toolkit. They are NVIDIA's, under its licence, and part of neither this repository nor a package.
set(KVKEEP_GPU AUTO CACHE STRING "Build the GPU path: AUTO, ON or OFF")
set_property(CACHE KVKEEP_GPU PROPERTY STRINGS AUTO ON OFF)
set(KVKEEP_CUDA_OLDEST 13000) # the first that has both forms of cuMemcpyBatchAsync
set(KVKEEP_HAS_GPU OFF)
if(KVKEEP_GPU STREQUAL "OFF")
  return()
endif()

if(NOT EXISTS "${KVKEEP_CUDA_INCLUDE_DIR}/cudaTypedefs.h")
  unset(KVKEEP_CUDA_INCLUDE_DIR CACHE) # found once, and gone since
endif()
find_path(KVKEEP_CUDA_INCLUDE_DIR cudaTypedefs.h NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH
          HINTS ENV CUDA_HOME
          PATHS /opt/kvkeep-deps/cuda /usr/local/cuda
          PATH_SUFFIXES include
          DOC "Folder of cuda.h and cudaTypedefs.h, of CUDA_VERSION ${KVKEEP_CUDA_OLDEST} or later")
set(problem "")
if(KVKEEP_CUDA_INCLUDE_DIR)
  file(STRINGS ${KVKEEP_CUDA_INCLUDE_DIR}/cuda.h line REGEX "^#define CUDA_VERSION ")
  string(REGEX REPLACE "[^0-9]" "" number "${line}")
  if(NOT number OR number LESS KVKEEP_CUDA_OLDEST)
    set(problem "${KVKEEP_CUDA_INCLUDE_DIR} is of CUDA_VERSION '${number}', needed is ${KVKEEP_CUDA_OLDEST}")
  endif()
else()
  set(problem "no cudaTypedefs.h; run tools/install-deps, or set CUDA_HOME")
endif()
if(problem AND KVKEEP_GPU STREQUAL "AUTO")
  message(STATUS "GPU path: not built (${problem})")
  return()
elseif(problem)
  message(FATAL_ERROR "KVKEEP_GPU is ${KVKEEP_GPU}: ${problem}")
endif()

message(STATUS "GPU path: built with ${KVKEEP_CUDA_INCLUDE_DIR}")
set(KVKEEP_HAS_GPU ON)
add_library(kvkeep_cuda_headers INTERFACE)
target_include_directories(kvkeep_cuda_headers SYSTEM INTERFACE ${KVKEEP_CUDA_INCLUDE_DIR})
