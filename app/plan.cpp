#include <CLI/CLI.hpp>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/config/load.h"
#include "lib/train/training_plan.h"
#include "lib/util/file.h"

namespace scatterlm {

void add_plan(CLI::App& app, int&) {
  struct Options {
    std::string config, gpu = "h200", json;
    std::vector<std::string> sets;
    int64_t gpus = 1;
    double tokens = 0, mfu = 0.4;
  };
  auto* command = app.add_subcommand("plan", "Memory, arithmetic, traffic and time of a training, without its GPUs");
  auto options = std::make_shared<Options>();
  command->add_option("config", options->config, "Configuration file")->required();
  command->add_option("--gpu", options->gpu, "h200, h100, a100 (80 GB), b200 or rtx4090")->capture_default_str();
  command->add_option("--gpus", options->gpus, "Number of GPUs, one rank on each")
      ->capture_default_str()
      ->check(in_range(1, 1e6));
  command->add_option("--tokens", options->tokens, "Tokens of the training, in place of the configuration's")
      ->check(in_range(1, 1e16));
  command->add_option("--mfu", options->mfu, "Assumed share of the GPUs' peak that model FLOPs reach")
      ->capture_default_str()
      ->check(in_range(1e-3, 1));
  command->add_option("--set", options->sets, "Override a key of the configuration: a.b=c; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--json", options->json, "Also write the figures to this JSON file");
  command->footer("Example:\n  scatterlm plan configs/olmoe_1b_7b.yaml --gpus 8 --gpu h100");
  command->callback([options] {
    const auto config = load_config(options->config, options->sets);
    const PlanRequest request{
        .gpu = planned_gpu(options->gpu), .gpus = options->gpus, .tokens = options->tokens, .mfu = options->mfu};
    const auto plan = plan_training(config, request);
    if (!options->json.empty()) write_file_atomic(options->json, plan_json(plan, config, request).dump(1) + "\n");
    std::cout << plan_text(plan, config, request);
  });
}

}  // namespace scatterlm
