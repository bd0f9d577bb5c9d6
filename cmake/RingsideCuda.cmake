# The CUDA Toolkit and NCCL, where they are. Sets RINGSIDE_HAS_CUDA and RINGSIDE_HAS_NCCL. To build needs no GPU; to run does.

set(RINGSIDE_CUDA AUTO CACHE STRING "Build the GPU half: AUTO (where the CUDA Toolkit is found), ON (it must be), OFF")
set_property(CACHE RINGSIDE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(RINGSIDE_HAS_CUDA FALSE)
set(RINGSIDE_HAS_NCCL FALSE)

# nvcc knows no sanitizers: with them AUTO is OFF.
if(RINGSIDE_CUDA STREQUAL "ON" OR (RINGSIDE_CUDA STREQUAL "AUTO" AND NOT RINGSIDE_SANITIZE))
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Machine code for the A100 and the H100, H200, and PTX, which the driver compiles for what comes after.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it of nvcc 13
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
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
