// Trains a small transformer on any mesh, with the installed libraries:
//
//     ringside launch -n 8 -- ./train_on_mesh pp=2,dp=2,tp=2
//     ringside launch -n 1 -- ./train_on_mesh
#include <cstdio>
#include <string>

#include "base/error.hpp"
#include "collectives/process_group.hpp"
#include "training/run.hpp"

using namespace ringside;

struct Printer : training::Reporter {
  void begin(const training::Run& run, const std::string&) override { writes = run.writes(); }
  void after_step(const training::StepReport& step) override {
    if (writes) std::printf("step %d: loss %.6f\n", static_cast<int>(step.step), step.loss);
  }
  bool writes = false;
};

int main(int count, char** arguments) try {
  auto group = collectives::ProcessGroup::from_environment();

  std::string text;
  for (int i = 0; i < 200; ++i) text += std::to_string(i * i) + " ranks train one model; ";
  const transformer::Corpus corpus(transformer::Bytes(text.begin(), text.end()));

  training::Plan plan;
  plan.config = transformer::named_config("tiny");
  plan.config.layers = 2;
  plan.config.sequence = 32;
  plan.dtype = autograd::DType::fp64;
  plan.options.steps = 4;
  plan.options.batch = 8;
  plan.options.accumulate = 2;  // and the pipeline's micro-batches
  plan.options.sequence = 32;
  if (count > 1) plan.divide(arguments[1]);

  Printer printer;
  training::train(plan, group, corpus, printer);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
