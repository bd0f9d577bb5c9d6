# The CUDA Toolkit and NCCL, where they are. Sets RINGSIDE_HAS_CUDA and RINGSIDE_HAS_NCCL. To build needs no GPU; to run does.

set(RINGSIDE_CUDA AUTO CACHE STRING "Build the GPU half: AUTO (where the CUDA Toolkit is found), ON (it must be), OFF")
set_property(CACHE RINGSIDE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(RINGSIDE_HAS_CUDA FALSE)
set(RINGSIDE_HAS_NCCL FALSE)

# nvcc knows no sanitizers, and CMake before 3.25 not its C++20: there AUTO is OFF.
if(RINGSIDE_CUDA STREQUAL "ON" OR (RINGSIDE_CUDA STREQUAL "AUTO" AND NOT RINGSIDE_SANITIZE AND CMAKE_VERSION VERSION_GREATER_EQUAL 3.25))
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Machine code for the A100 and the H100, H200, and PTX, which the driver compiles for what comes after.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    if(RINGSIDE_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${RINGSIDE_CCACHE})
    endif()
    set(RINGSIDE_HAS_CUDA TRUE)
    find_package(NCCL QUIET)
    set(RINGSIDE_HAS_NCCL ${NCCL_FOUND})
  elseif(RINGSIDE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "RINGSIDE_CUDA is ON, and there is no nvcc: install the CUDA Toolkit 13, put nvcc into PATH or name it by "
                        "-DCMAKE_CUDA_COMPILER=.../nvcc; or configure with -DRINGSIDE_CUDA=OFF")
  endif()
endif()

if(RINGSIDE_HAS_CUDA)
  message(STATUS "GPU: CUDA ${CUDAToolkit_VERSION}, NCCL ${NCCL_VERSION}")
else()
  message(STATUS "GPU: built without")
endif()
