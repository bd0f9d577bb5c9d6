// Compiled with the student's file each time that it changes.
#include "exercises/37-tiled-product/interface.hpp"
#include "tiled_product.hpp"

namespace ringside::exercises {
namespace {
[[maybe_unused]] const bool bound =
    student_product.bind(student::gpu::product<gpu::EmulatedThread>);
}
}  // namespace ringside::exercises
