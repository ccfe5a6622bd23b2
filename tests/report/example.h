// A step as a trainer reports it.
#pragma once
#include "lib/train/step_report.h"

namespace scatterlm {

inline StepReport example_report(int64_t step = 100) {
  return {.step = step,
          .total_steps = 610,
          .tokens = 4096 * step,
          .loss = 2.81234,
          .aux_loss = 2.0312,
          .z_loss = 7.5,
          .grad_norm = 0.8312,
          .lr = 2.99e-3,
          .step_ms = 182.4,
          .tok_s = 22456,
          .flops_per_token = 4.25e6,
          .mem_gib = 0.91,
          .load_max_mean = 1.42,
          .routers = {{.name = "layers.1.attention", .load_max_mean = 1.1, .entropy = 2, .aux_loss = 1.01, .z_loss = 3},
                      {.name = "layers.1.mlp",
                       .load_max_mean = 1.42,
                       .dead_experts = 1,
                       .entropy = 1.5,
                       .aux_loss = 1.0212,
                       .z_loss = 4.5}}};
}

}  // namespace scatterlm
