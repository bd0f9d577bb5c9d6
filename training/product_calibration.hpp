// Which library multiplies fp32 matrices on this machine: `ringside bench --calibrate` measures it
// once, and every command that computes goes by it. In the calibration file:
//
//     {"products": "fp32", "host": "lab3", "cores": 2, "blas": "OpenBLAS 0.3.21 SkylakeX",
//      "onednn_speed": {"long NT": 1.08, "long NN": 1.09, ..., "short TN": 0.92}}
//
// onednn_speed is the time of the BLAS divided by the time of oneDNN. An entry is for one BLAS and
// one of its kernels: after a change of either, all products go to the BLAS again.
#pragma once

#include <string>
#include <vector>

#include "autograd/kernels/products/fp32_products.hpp"

namespace ringside::training {

struct ProductSpeed {
  autograd::ProductKind kind;
  double onednn_speed = 0;
};

// Measures each kind with both libraries in turn, on one thread; takes a second. Empty without
// oneDNN.
std::vector<ProductSpeed> measure_products();

// Writes them into the calibration file. Throws Error if it cannot be written.
void keep_products(const std::vector<ProductSpeed>& speeds);

// The speed of oneDNN for each kind of product, where that of the BLAS is 1, in lines of at most 80
// columns; or why there is no oneDNN.
std::string products_report(const std::vector<ProductSpeed>& speeds);

// Begins to compute in this process: on so many threads, and with the faster library for each kind
// of product by the calibration file. Without an entry for this machine the BLAS multiplies all, or
// oneDNN if there is one and the BLAS does not know this processor.
void begin_computing(int threads);

}  // namespace ringside::training
