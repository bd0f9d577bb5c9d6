# The CUDA Toolkit and the header of NCCL, if they are installed. Sets RINGSIDE_HAS_CUDA and RINGSIDE_HAS_NCCL. The build needs no GPU.

set(RINGSIDE_CUDA AUTO CACHE STRING "Build the GPU half: AUTO (if the CUDA Toolkit is found), ON (required), OFF")
set_property(CACHE RINGSIDE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(RINGSIDE_HAS_CUDA FALSE)
set(RINGSIDE_HAS_NCCL FALSE)

# nvcc has no sanitizers: with sanitizers AUTO means OFF.
if(RINGSIDE_CUDA STREQUAL "ON" OR (RINGSIDE_CUDA STREQUAL "AUTO" AND NOT RINGSIDE_SANITIZE))
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # One architecture, because nvcc compiles everything again for each: that of this machine's GPU; without a GPU the A100's, whose
    # PTX the driver compiles for later GPUs. For several: -DCMAKE_CUDA_ARCHITECTURES="80-real;90".
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
        OUTPUT_VARIABLE capability RESULT_VARIABLE ignored ERROR_QUIET)
      if(capability MATCHES "^([0-9]+)[.]([0-9])")
        set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
      else()
        set(CMAKE_CUDA_ARCHITECTURES 80)
      endif()
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 has C++20
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
    message(FATAL_ERROR "RINGSIDE_CUDA is ON, but there is no nvcc: install the CUDA Toolkit 13, then add nvcc to PATH or name it with "
                        "-DCMAKE_CUDA_COMPILER=.../nvcc; or configure with -DRINGSIDE_CUDA=OFF")
  endif()
endif()

if(RINGSIDE_HAS_CUDA)
  message(STATUS "GPU: CUDA ${CUDAToolkit_VERSION}, NCCL ${NCCL_VERSION}")
else()
  message(STATUS "GPU: not built")
endif()
