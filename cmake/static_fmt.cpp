// fmt's functions as a static library: cmake/RingsideStatic.cmake.
#include <fmt/format.h>
