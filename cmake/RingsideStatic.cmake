# fmt, and OpenSSL's libcrypto for SHA-256. A portable build (RINGSIDE_NATIVE=OFF) links both statically:
# releases of Debian and Ubuntu have different versions, and a course made of the build must depend on
# neither. ${ringside_fmt} is what links fmt; ${ringside_static} are the archives of such a build, by path.
find_package(fmt REQUIRED)
set(ringside_fmt fmt::fmt)
set(ringside_static "")
if(RINGSIDE_NATIVE)
  find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
  return()
endif()

# libfmt-dev has no static library, so one is made of its headers: FMT_HEADER_ONLY makes every function
# inline, and these options compile each of them all the same. With FMT_HEADER_ONLY everywhere, a student's
# file would take three times as long to compile. Clang has no such option, and makes programs only.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(ringside_fmt ringside_fmt)
  add_library(ringside_fmt STATIC cmake/static_fmt.cpp)
  target_compile_features(ringside_fmt PRIVATE cxx_std_20)
  target_compile_definitions(ringside_fmt PRIVATE FMT_HEADER_ONLY)
  target_compile_options(ringside_fmt PRIVATE -fkeep-inline-functions -fno-inline)
  set_target_properties(ringside_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON)  # for libringside_emulated.so
  set_property(GLOBAL APPEND PROPERTY RINGSIDE_LIBRARIES ringside_fmt)
else()
  set(ringside_fmt fmt::fmt-header-only)
endif()

set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
file(STRINGS ${OPENSSL_CRYPTO_LIBRARY} compresses REGEX ZSTD_compress LIMIT_COUNT 1)
set(compression "")
if(compresses)  # that of Debian 13
  find_library(RINGSIDE_ZLIB libz.a)
  find_library(RINGSIDE_ZSTD libzstd.a)
  if(NOT RINGSIDE_ZLIB OR NOT RINGSIDE_ZSTD)
    message(FATAL_ERROR "a portable build links libcrypto statically, which needs libz.a and libzstd.a here: "
      "apt-get install zlib1g-dev libzstd-dev")
  endif()
  set(compression ${RINGSIDE_ZLIB} ${RINGSIDE_ZSTD})
endif()
set(ringside_static ${OPENSSL_CRYPTO_LIBRARY} ${compression})
set_target_properties(OpenSSL::Crypto PROPERTIES
  INTERFACE_LINK_LIBRARIES "${compression};Threads::Threads;${CMAKE_DL_LIBS}")
# A library that a program opens may need another version of them, and must not find these. Zig's linker
# does not know the option, and its programs do not export them: cmake/RingsidePrograms.cmake.
if(NOT RINGSIDE_WHEEL)
  add_link_options(LINKER:--exclude-libs,libcrypto.a:libz.a:libzstd.a)
endif()
