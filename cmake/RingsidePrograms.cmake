# ringside_program(NAME COMMANDS commands... [SOURCES ...] LINK targets...): build/PRESET/bin/NAME, a program
# with these commands in this order, and with `help` (cli/program/program.hpp). A command NAME is
# commands/NAME.cpp with the function add_NAME_command(), and NAME.txt beside it is the end of its help. One
# with more files is commands/NAME/NAME.cpp. A subcommand PARENT/NAME is commands/PARENT/NAME.cpp, or
# commands/NAME.cpp. NAME@PROGRAM is a command that PROGRAM has, which this program runs for it; NAME@python is
# one of the Python package.

function(ringside_program program)
  cmake_parse_arguments(ARG "" "" "COMMANDS;SOURCES;LINK" ${ARGN})
  set(sources ${ARG_SOURCES})
  set(declarations "void add_help_command(CLI::App& parent);\n")
  set(calls "")
  set(programs "")
  foreach(command ${ARG_COMMANDS})
    if(command MATCHES "^(.*)@(.*)$")
      string(APPEND calls "  if (name.empty()) add_other_command(app, \"${CMAKE_MATCH_1}\");\n")
      string(APPEND programs "  if (command == \"${CMAKE_MATCH_1}\") return \"${CMAKE_MATCH_2}\";\n")
      continue()
    endif()
    string(REPLACE "/" "_" function add_${command}_command)
    get_filename_component(parent ${command} DIRECTORY)
    get_filename_component(own_name ${command} NAME)
    string(APPEND declarations "void ${function}(CLI::App& parent);\n")
    string(APPEND calls "  if (name == \"${parent}\") ${function}(app);\n")
    set(source commands/${own_name})
    foreach(place commands/${command}/${own_name} commands/${command})
      if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${place}.cpp)
        set(source ${place})
        break()
      endif()
    endforeach()
    list(APPEND sources ${source}.cpp)
    set(help_file ${CMAKE_CURRENT_SOURCE_DIR}/${source}.txt)
    if(EXISTS ${help_file})
      file(READ ${help_file} help)
      string(STRIP "${help}" help)
      string(APPEND calls "  if (name == \"${parent}\") set_notes(app, \"${own_name}\", R\"help(${help})help\");\n")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${help_file})
    endif()
  endforeach()
  string(APPEND calls "  if (name.empty()) add_help_command(app);\n")
  configure_file(${PROJECT_SOURCE_DIR}/cli/program/main.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/main.cpp @ONLY)
  # address_space.cpp: in a library the linker would leave it out, because nothing calls it.
  add_executable(${program} ${CMAKE_CURRENT_BINARY_DIR}/main.cpp ${PROJECT_SOURCE_DIR}/cli/program/address_space.cpp ${sources})
  ringside_join_sources(${program} ${sources})
  # A shared library (--parallel NAME.so, --plugin NAME.so) calls what is linked into the program: ENABLE_EXPORTS.
  # With the RUNPATH of the installed program from the start: one that CMake is to edit later ends in an empty
  # entry, the current folder. What is packed with its libraries has set CMAKE_INSTALL_RPATH.
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin BUILD_WITH_INSTALL_RPATH ON)
  if(NOT CMAKE_INSTALL_RPATH)
    set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  target_link_libraries(${program} PRIVATE ringside::cli_program ${ARG_LINK})
  if(RINGSIDE_WHEEL)  # exports what this library calls; Zig's linker would export all of libcrypto and libc++, too
    add_dependencies(${program} ringside_emulated)
    target_link_libraries(${program} PRIVATE $<TARGET_FILE:ringside_emulated>)
  else()
    set_target_properties(${program} PROPERTIES ENABLE_EXPORTS ON)
  endif()
  ringside_gdb_script(${program})
endfunction()
