# Finds Gloo, which Debian packages as libgloo-dev. Defines Gloo::gloo and Gloo_FOUND.

find_path(Gloo_INCLUDE_DIR gloo/rendezvous/context.h)
find_library(Gloo_LIBRARY gloo)
mark_as_advanced(Gloo_INCLUDE_DIR Gloo_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gloo REQUIRED_VARS Gloo_LIBRARY Gloo_INCLUDE_DIR)

if(Gloo_FOUND AND NOT TARGET Gloo::gloo)
  add_library(Gloo::gloo UNKNOWN IMPORTED)
  set_target_properties(Gloo::gloo PROPERTIES IMPORTED_LOCATION "${Gloo_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${Gloo_INCLUDE_DIR}")
endif()
