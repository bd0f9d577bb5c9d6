# Compiles what a wheel holds for glibc 2.28 on x86-64 or 64-bit Arm, with the Clang and libc++ of PyPI's
# ziglang. tools/build-wheel prepares RINGSIDE_WHEEL_TOOLS, a folder with Zig and OpenBLAS, and takes the presets
# wheel-x86_64 and wheel-aarch64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${RINGSIDE_WHEEL})
set(CMAKE_LIBRARY_ARCHITECTURE ${RINGSIDE_WHEEL}-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/${RINGSIDE_WHEEL}-linux-gnu/pkgconfig:/usr/share/pkgconfig)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RINGSIDE_WHEEL RINGSIDE_WHEEL_TOOLS)

# CMake and ccache expect a program for each tool.
set(zig ${RINGSIDE_WHEEL_TOOLS}/zig/zig)
set(tools ${RINGSIDE_WHEEL_TOOLS}/${RINGSIDE_WHEEL})
file(WRITE ${tools}/clang++ "#!/bin/sh\nexec ${zig} c++ -target ${RINGSIDE_WHEEL}-linux-gnu.2.28 \"$@\"\n")
file(WRITE ${tools}/ar "#!/bin/sh\nexec ${zig} ar \"$@\"\n")
file(WRITE ${tools}/ranlib "#!/bin/sh\nexec ${zig} ranlib \"$@\"\n")
file(CHMOD ${tools}/clang++ ${tools}/ar ${tools}/ranlib FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(CMAKE_CXX_COMPILER ${tools}/clang++)
set(CMAKE_AR ${tools}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB ${tools}/ranlib CACHE FILEPATH "")
set(RINGSIDE_PORTABLE_X86 x86_64_v3)  # Zig's word for x86-64-v3

# Headers of libraries, which lie beside those of this system's glibc in /usr/include.
file(MAKE_DIRECTORY ${tools}/include ${tools}/include-own)
foreach(library boost fmt CLI nlohmann openssl)
  file(CREATE_LINK /usr/include/${library} ${tools}/include/${library} SYMBOLIC)
endforeach()
file(CREATE_LINK /usr/include/${RINGSIDE_WHEEL}-linux-gnu/openssl ${tools}/include-own/openssl SYMBOLIC)
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${tools}/include ${tools}/include-own)
# Asio of Boost 1.74 knows no newer libc++.
set(CMAKE_CXX_FLAGS_INIT "-DBOOST_ASIO_HAS_STD_INVOKE_RESULT")
# For divisions of 128 bits and, on Arm, long doubles Zig would link its own runtime, and with it a memcpy() and a memset()
# that take the place of glibc's and are slower.
file(GLOB libgcc /usr/lib/gcc/${RINGSIDE_WHEEL}-linux-gnu/*/libgcc.a /usr/lib/gcc-cross/${RINGSIDE_WHEEL}-linux-gnu/*/libgcc.a)
if(NOT libgcc)
  message(FATAL_ERROR "There is no libgcc.a for ${RINGSIDE_WHEEL}: tools/build-wheel installs it, with GCC")
endif()
list(GET libgcc -1 libgcc)
set(CMAKE_CXX_STANDARD_LIBRARIES ${libgcc})
# libc++ comes with the information of a debugger, 50 MB.
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)

set(OPENBLAS_LIBRARY ${tools}/lib/libscipy_openblas.so CACHE FILEPATH "")
set(CBLAS_INCLUDE_DIR ${tools}/blas CACHE PATH "")
set(RINGSIDE_STANDARD_LIBRARY_HEADERS ../text CACHE PATH "")  # from the folder of the program
