# `cmake --install`: the programs, the libraries and their headers, so that another project says
#
#     find_package(Ringside REQUIRED)
#     target_link_libraries(assignment PRIVATE ringside::ddp)      # or any other folder's library
#
# and a C program links ringside::c, or takes its options from `pkg-config ringside`.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

get_property(installed GLOBAL PROPERTY RINGSIDE_LIBRARIES)
list(REMOVE_ITEM installed ringside_cli_launcher ringside_cli_pictures ringside_cli_options ringside_cli_training_options ringside_cli_program ringside_cli_commands ringside_bench ringside_library_backends ringside_nccl ringside_judge)  # the programs' own
foreach(library ${installed})
  string(REPLACE "ringside_" "" name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name})
endforeach()
set_target_properties(ringside_options PROPERTIES EXPORT_NAME options)
if(RINGSIDE_HAS_CUDA)
  list(APPEND installed ringside_cuda_kernels ringside_cuda_autograd_kernels)
endif()

install(TARGETS ringside ringside-bench ${installed} ringside_options ringside_c EXPORT RingsideTargets)
install(TARGETS ringside_emulated EXPORT RingsideTargets DESTINATION lib)  # where the program looks
install(FILES collectives/c_interface/ringside.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(collectives/c_interface/ringside.pc.in ${PROJECT_BINARY_DIR}/ringside.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ringside.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(folder base collectives autograd transformer parallel ddp zero training)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ringside FILES_MATCHING PATTERN "*.hpp")
endforeach()

# The commands in Python, where the program looks for them.
install(DIRECTORY python/ringside DESTINATION ${CMAKE_INSTALL_DATADIR}/ringside/python FILES_MATCHING PATTERN "*.py"
  PATTERN "*.json" PATTERN "*.html" PATTERN "*.css" PATTERN "*.js")
install(FILES python/__main__.py DESTINATION ${CMAKE_INSTALL_DATADIR}/ringside/python)

# The manual page and the completions, as the program writes them.
foreach(document man:${CMAKE_INSTALL_MANDIR}/man1/ringside.1
                 bash:${CMAKE_INSTALL_DATADIR}/bash-completion/completions/ringside
                 zsh:${CMAKE_INSTALL_DATADIR}/zsh/site-functions/_ringside
                 fish:${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/ringside.fish)
  string(REGEX MATCH "^([a-z]+):(.*)/([^/]+)$" matched ${document})
  set(folder "\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_MATCH_2}")
  install(CODE "file(MAKE_DIRECTORY \"${folder}\")
    execute_process(COMMAND \"$<TARGET_FILE:ringside>\" help --as ${CMAKE_MATCH_1}
      OUTPUT_FILE \"${folder}/${CMAKE_MATCH_3}\" COMMAND_ERROR_IS_FATAL ANY)
    message(STATUS \"Installing: ${folder}/${CMAKE_MATCH_3}\")")
endforeach()
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})

find_package(OpenMP QUIET COMPONENTS CXX)  # for OpenMP_CXX_FOUND in RingsideConfig.cmake.in
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Ringside)
install(EXPORT RingsideTargets NAMESPACE ringside:: DESTINATION ${package})
configure_package_config_file(cmake/RingsideConfig.cmake.in ${PROJECT_BINARY_DIR}/RingsideConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/RingsideConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/RingsideConfig.cmake ${PROJECT_BINARY_DIR}/RingsideConfigVersion.cmake
  DESTINATION ${package})
