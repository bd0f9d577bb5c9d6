// What a user learns of the libraries that multiply matrices.
#include "training/matrix_libraries.hpp"

#include <cstdlib>

#include <doctest/doctest.h>

#include "tests/text.hpp"

using namespace ringside;
using namespace ringside::training;

TEST_CASE("a warning names a BLAS whose kernel leaves half of the processor unused") {
  MatrixLibraries libraries{"OpenBLAS 0.3.21", "Haswell", 512, ""};
  ::setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  CHECK(slow_kernel_warning(libraries) ==
        "OpenBLAS 0.3.21 multiplies with its kernel Haswell, whose vectors have 256 bits, but this "
        "processor has 512: unset OPENBLAS_CORETYPE");
  CHECK_FALSE(blas_does_not_know_processor(libraries.blas_kernel, libraries.vector_bits));
  ::unsetenv("OPENBLAS_CORETYPE");
  CHECK(blas_does_not_know_processor(libraries.blas_kernel, libraries.vector_bits));
  CHECK(tests::contains(slow_kernel_warning(libraries),
                        "has 512: set OPENBLAS_CORETYPE=SKYLAKEX, or install oneDNN or a newer "
                        "OpenBLAS"));
  CHECK(in_words(libraries) ==
        "products by OpenBLAS 0.3.21 (Haswell), bf16 by oneDNN; 512-bit vectors");
  libraries.vector_bits = 256;
  CHECK(slow_kernel_warning(libraries) == "");
  CHECK_FALSE(blas_does_not_know_processor(libraries.blas_kernel, libraries.vector_bits));
  CHECK(slow_kernel_warning({"OpenBLAS 0.3.21", "Prescott", 512, "", true}) == "");
  libraries = {"OpenBLAS 0.3.21", "SkylakeX", 512, "", true};
  CHECK(in_words(libraries) ==
        "products by OpenBLAS 0.3.21 (SkylakeX) and oneDNN; 512-bit vectors");
  libraries = {"OpenBLAS 0.3.21", "SkylakeX", 512, "oneDNN is not installed"};
  CHECK(slow_kernel_warning(libraries) == "");
  CHECK(tests::contains(in_words(libraries), ", bf16 as fp32; "));
  CHECK(slow_kernel_warning({"", "", 512, ""}) == "");                // a BLAS that does not tell
  CHECK(slow_kernel_warning({"OpenBLAS", "NewOne", 512, ""}) == "");  // a kernel of the future
  CHECK(in_words({"", "", 0, ""}) == "products by a BLAS, bf16 by oneDNN");
}

TEST_CASE("OpenBLAS is asked for a kernel only where nobody has asked") {
  ::setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  CHECK(kernel_to_ask_for() == "");
  ::unsetenv("OPENBLAS_CORETYPE");
  const MatrixLibraries here = matrix_libraries();
  const bool unknown = blas_does_not_know_processor(here.blas_kernel, here.vector_bits);
  CHECK(kernel_to_ask_for().empty() == (!unknown || here.fp32_by_onednn));
}
