#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/bench/evidence.h"
#include "lib/bench/timer.h"
#include "lib/config/load.h"
#include "lib/train/decode_speed.h"
#include "lib/train/kernel_limits.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

struct DecodeOptions {
  std::string config, json;
  std::vector<std::string> sets;
  DecodeShape shape;
  int64_t iterations = 5;
};

/// What another person types for the same figures.
std::string command_of(const DecodeOptions& options) {
  const auto& [batch, prompt, tokens] = options.shape;
  auto command = fmt::format("scatterlm bench decode {} --batch {} --prompt {} --tokens {} --iterations {}", options.config,
                             batch, prompt, tokens, options.iterations);
  for (const auto& set : options.sets) command += fmt::format(" --set '{}'", set);
  return command;
}

void bench_decode(const DecodeOptions& options) {
  const auto sources = source_hash(SourceSet::kTraining);
  const auto config = load_config(options.config, options.sets);
  const auto& shape = options.shape;
  if (!options.json.empty()) bench::require_evidence(options.json, sources);
  const auto setup = set_up_execution(config.train);
  check_kernel_limits(config.model, setup);
  const auto machine = setup.device.is_cuda() ? bench::find_machine("") : bench::Machine{};
  std::cout << describe(setup) << std::endl;

  const auto times = measure_decoding(config, setup, shape, options.iterations);
  const double prefill_ms = bench::spread_of(times.prefill_ms).median, token_ms = bench::spread_of(times.token_ms).median;
  const double per_second = 1e3 * static_cast<double>(shape.batch);
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(setup.dtype));
  const double bytes = decoded_weight_bytes(config.model, shape.batch, element_bytes);
  const double copy_tbps = machine.ceilings ? machine.ceilings->copy_tbps : bench::measure_copy_tbps(setup.device);
  const double read_ms = bytes / copy_tbps / 1e9, percent = 100 * read_ms / token_ms;
  std::cout << fmt::format("prefill of {} x {} tokens: {:.2f} ms, {:.0f} tok/s\n", shape.batch, shape.prompt, prefill_ms,
                           per_second * static_cast<double>(shape.prompt) / prefill_ms)
            << fmt::format("decoding of {} x {} tokens: {:.2f} ms per token, {:.1f} tok/s\n", shape.batch, shape.tokens,
                           token_ms, per_second / token_ms)
            << fmt::format(
                   "weights that a token multiplies: {}; reading them once at the speed of a copy, {:.0f} GB/s, takes "
                   "{:.2f} ms: {:.0f} %\n",
                   format_bytes(bytes), 1e3 * copy_tbps, read_ms, percent);
  if (options.json.empty()) return;
  const nlohmann::ordered_json row{{"config", options.config},
                                   {"dtype", setup.dtype == at::kBFloat16 ? "bf16" : "fp32"},
                                   {"batch", shape.batch},
                                   {"prompt", shape.prompt},
                                   {"tokens", shape.tokens},
                                   {"prefill_ms", prefill_ms},
                                   {"token_ms", token_ms},
                                   {"tok_s", per_second / token_ms},
                                   {"weight_mib", bytes / (1 << 20)},
                                   {"copy_tbps", copy_tbps},
                                   {"read_ms", read_ms},
                                   {"read_percent", percent}};
  auto file = bench::evidence("decode", machine, command_of(options), sources, {row});
  file["device"] = describe(setup);
  write_file_atomic(options.json, file.dump(1) + "\n");
}

}  // namespace

void add_bench_decode(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "decode", "Decoding of a model with random weights, compared with reading the weights that a token multiplies once");
  auto options = std::make_shared<DecodeOptions>();
  auto& shape = options->shape;
  command->add_option("config", options->config, "Configuration file")->required();
  command->add_option("--set", options->sets, "Override a key of the configuration: a.b=c; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--batch", shape.batch, "Sequences")->capture_default_str()->check(in_range(1, 4096));
  command->add_option("--prompt", shape.prompt, "Tokens of each sequence that are read in one pass")
      ->capture_default_str()
      ->check(in_range(1, 1 << 20));
  command->add_option("--tokens", shape.tokens, "Tokens that follow, one after the other")
      ->capture_default_str()
      ->check(in_range(1, 1 << 20));
  command->add_option("--iterations", options->iterations, "Rounds, of which the medians count")
      ->capture_default_str()
      ->check(in_range(1, 10000));
  command->add_option("--json", options->json, "Write an evidence file");
  command->footer("Example:\n  scatterlm bench decode configs/moe_124m.yaml --prompt 512");
  command->callback([options] { bench_decode(*options); });
}

}  // namespace scatterlm
