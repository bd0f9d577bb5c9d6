// What this machine's processor can compute with.
#pragma once

namespace ringside {

// Of x86-64: the processor has it, and the system saves its registers. Elsewhere all are false.
struct ProcessorFeatures {
  bool avx2 = false, avx512f = false, avx512vl = false, avx512bf16 = false;
};

ProcessorFeatures processor_features();

}  // namespace ringside
