# The compile options of every target, and the function with which each folder defines its library.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()

find_program(RINGSIDE_CCACHE ccache)
if(RINGSIDE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${RINGSIDE_CCACHE})
endif()

add_library(ringside_options INTERFACE)
target_compile_features(ringside_options INTERFACE cxx_std_20)
target_include_directories(ringside_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/ringside>)
# Warnings and the processor are this build's own: a project that uses Ringside chooses its own.
set(own_options -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(RINGSIDE_WARNINGS_AS_ERRORS)
  list(APPEND own_options -Werror)
endif()
if(RINGSIDE_NATIVE AND NOT RINGSIDE_SANITIZE)
  list(APPEND own_options -march=native)
elseif(NOT RINGSIDE_NATIVE AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  # What other machines get: AVX2 and FMA, which processors have had since 2013 (Intel) and 2015 (AMD).
  # base/system/processor.cpp refuses an older one. OpenBLAS and oneDNN choose their kernels themselves.
  list(APPEND own_options -march=$<IF:$<BOOL:${RINGSIDE_PORTABLE_X86}>,${RINGSIDE_PORTABLE_X86},x86-64-v3>)
endif()
target_compile_options(ringside_options INTERFACE "$<BUILD_INTERFACE:${own_options}>")
# fmt's headers enable -Og for their own functions, even in a debug build, and -Og enables variable
# tracking. gdb then treats the whole file as optimised and stops before a function's arguments are
# in place.
target_compile_options(ringside_options INTERFACE $<$<AND:$<CONFIG:Debug>,$<CXX_COMPILER_ID:GNU>>:-fno-var-tracking>)
if(RINGSIDE_SANITIZE)
  # Of the directory, not of ringside_options: the last option counts, and ringside_compile_quickly()
  # takes some of these checks back.
  add_compile_options(-fsanitize=${RINGSIDE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ringside_options INTERFACE -fsanitize=${RINGSIDE_SANITIZE})
  # GCC says by a macro which of them checks the code. Clang has no such macro.
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    if(RINGSIDE_SANITIZE MATCHES "thread")
      add_compile_definitions(__SANITIZE_THREAD__=1)
    elseif(RINGSIDE_SANITIZE MATCHES "address")
      add_compile_definitions(__SANITIZE_ADDRESS__=1)
    endif()
  endif()
  if(RINGSIDE_SANITIZE MATCHES "undefined")
    # UndefinedBehaviorSanitizer adds some 100 MB of data with pointers to `ringside`. Relocating them
    # takes half the time of a start, so programs have fixed addresses.
    target_link_options(ringside_options INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  endif()
  if(RINGSIDE_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC warns that ThreadSanitizer does not model Asio's fences. That is harmless here: each
    # io_context has one thread.
    target_compile_options(ringside_options INTERFACE -Wno-tsan)
  endif()
endif()

if(RINGSIDE_FUZZ)
  # Older versions refuse lambdas that capture a structured binding, as the kernels' do.
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
    message(FATAL_ERROR "RINGSIDE_FUZZ needs Clang 16 or newer, not ${CMAKE_CXX_COMPILER_ID} "
      "${CMAKE_CXX_COMPILER_VERSION}: apt-get install clang-16 libclang-rt-16-dev, then "
      "cmake --preset fuzz -DCMAKE_CXX_COMPILER=clang++-16")
  endif()
  # libFuzzer sees which branches an input takes. The library itself is linked to its programs only.
  target_compile_options(ringside_options INTERFACE -fsanitize=fuzzer-no-link)
  target_link_options(ringside_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Sources in which no rank spends its time: a release build compiles them with -O1 instead of -O3, which
# takes three quarters of the time. -O1 fuses no multiplication with an addition, so what computes part of a
# result stays out: `objdump -d` shows no vfmadd in their objects with -O3 -march=native, but for figures
# that are only printed.
set(cold_sources "^(collectives/(algorithm_files|bootstrap|diagnostics)|parallel|training|transformer|zero)/")
set(hot_sources training/trainer.cpp)

# ringside_library(NAME SOURCES... [LINK TARGETS...]): defines the static library of one folder.
function(ringside_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  list(TRANSFORM ARG_UNPARSED_ARGUMENTS PREPEND ${folder}/ OUTPUT_VARIABLE cold)
  list(FILTER cold INCLUDE REGEX ${cold_sources})
  list(REMOVE_ITEM cold ${hot_sources})
  list(TRANSFORM cold REPLACE "^${folder}/" "")
  list(REMOVE_ITEM ARG_UNPARSED_ARGUMENTS ${cold})
  add_library(ringside_${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  add_library(ringside::${name} ALIAS ringside_${name})
  target_link_libraries(ringside_${name} PUBLIC ringside_options ${ARG_LINK})
  ringside_join_sources(ringside_${name} ${ARG_UNPARSED_ARGUMENTS})
  set_property(GLOBAL APPEND PROPERTY RINGSIDE_LIBRARIES ringside_${name})
  if(cold)
    add_library(ringside_${name}_cold OBJECT ${cold})
    target_link_libraries(ringside_${name}_cold PRIVATE ringside_options ${ARG_LINK})
    target_compile_options(ringside_${name}_cold PRIVATE $<$<CONFIG:Release>:-O1>)
    ringside_join_sources(ringside_${name}_cold ${cold})
    target_sources(ringside_${name} PRIVATE $<TARGET_OBJECTS:ringside_${name}_cold>)
    set_target_properties(ringside_${name} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
endfunction()

# ringside_gdb_script(TARGET): writes TARGET-gdb.py beside the program. gdb runs it when it opens the
# program, if the folder is in its auto-load safe-path (docs/debugging.md).
function(ringside_gdb_script target)
  file(GENERATE OUTPUT $<TARGET_FILE_DIR:${target}>/$<TARGET_FILE_NAME:${target}>-gdb.py
    CONTENT "import sys\nsys.path.insert(0, '${PROJECT_SOURCE_DIR}/tools/gdb')\nimport ringside_gdb\n")
endfunction()

# ringside_debug_types(SOURCES...): these sources have debug information in a release build, too. They
# define types that gdb's pretty-printers look into, and a student's program, compiled with -g, is
# linked with libraries of a release build. Paths in it are relative to an exported course, so that
# an export does not depend on the folder of the build.
function(ringside_debug_types)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS
    "$<$<CONFIG:Release>:-g;-fdebug-prefix-map=${PROJECT_SOURCE_DIR}=reference;-fdebug-prefix-map=${PROJECT_BINARY_DIR}=build>")
endfunction()

# For code that takes longer to compile than to run, and whose callees are optimised: cli/ and the
# tests. In this folder and below, a release build uses -O1, which saves a third of the time for cli/
# and a quarter for the tests. A sanitizer build does not check each pointer for null, alignment and
# type here, which costs a fifth of the time and most of the data. AddressSanitizer reports an access
# through null all the same.
function(ringside_compile_quickly)
  if(NOT RINGSIDE_SANITIZE)
    add_compile_options("$<$<CONFIG:Release>:-O1>")
  elseif(RINGSIDE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize=null,alignment,vptr)
  endif()
endfunction()

# For code in which the tests spend their time. A sanitizer build uses -O0, which compiles in half the
# time or less, and -O1 in this folder and below.
function(ringside_optimise_under_sanitizers)
  if(RINGSIDE_SANITIZE)
    add_compile_options(-O1)
  endif()
endfunction()
