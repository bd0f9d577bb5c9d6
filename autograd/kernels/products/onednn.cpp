#include "autograd/kernels/products/onednn.hpp"

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/system/shared_library.hpp"

namespace ringside::autograd {

namespace {

OneDnn open_onednn() {
  OneDnn found;
  if (environment("RINGSIDE_ONEDNN").value_or("on") == "off") {
    found.missing = "RINGSIDE_ONEDNN is off";
    return found;
  }
  for (const char* file : {"libdnnl.so.3", "libdnnl.so.2"}) try {
      const SharedLibrary library("oneDNN", file, "/usr/local/lib");
      library.find(found.set_openmp_threads, "omp_set_num_threads");
      library.find(found.gemm_fp32, "dnnl_sgemm");
      library.find(found.gemm_bf16, "dnnl_gemm_bf16bf16f32");
      found.missing.clear();
      return found;
    } catch (const Error&) {
      found.missing = "oneDNN is not installed (Debian: apt install libdnnl2)";
    }
  return found;
}

}  // namespace

const OneDnn& onednn() {
  static const OneDnn opened = open_onednn();
  return opened;
}

}  // namespace ringside::autograd
