#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/bench/bench.h"
#include "lib/bench/evidence.h"
#include "lib/util/error.h"
#include "lib/util/file.h"

namespace scatterlm {
namespace {

struct BenchOptions {
  std::string name, shapes, family, json, dump;
  std::string routing = "random";
  int64_t iterations = 0;
};

/// What another person types for the same figures.
std::string command_of(const BenchOptions& options) {
  auto command = fmt::format("scatterlm bench {} --shapes '{}'", options.name, options.shapes);
  if (options.routing != "random") command += " --routing " + options.routing;
  if (!options.family.empty()) command += " --family " + options.family;
  if (options.iterations > 0) command += fmt::format(" --iterations {}", options.iterations);
  return command;
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_user("--dump: {}: cannot create the folder: {}", path, error.message());
}

std::string describe(const bench::Machine& machine) {
  if (!machine.ceilings) return "CPU, fp32: figures of a CPU say nothing about a GPU";
  return fmt::format("{}, {} kernels, bf16; ceilings: GEMM {:.0f} TFLOP/s, copy {:.2f} TB/s", machine.gpu, machine.family,
                     machine.ceilings->gemm_tflops, machine.ceilings->copy_tbps);
}

void run_bench(const BenchOptions& options) {
  const bool whole_op = options.name == "moe_mlp";
  const auto shapes = bench::parse_shapes(options.shapes);
  const auto routing = bench::parse_routing(options.routing);
  const auto sources = source_hash(SourceSet::kKernels);
  if (!options.dump.empty() && !whole_op) fail_user("--dump: {} has nothing to dump, moe_mlp has", options.name);
  if (!options.family.empty() && !whole_op && options.name != "grouped_gemm")
    fail_user("--family: {} has one kernel for all GPUs", options.name);
  if (!options.json.empty()) bench::require_evidence(options.json, sources);
  if (!options.dump.empty()) make_folder(options.dump);

  const auto machine = bench::find_machine(options.family);
  if (machine.device.is_cuda()) std::for_each(shapes.begin(), shapes.end(), bench::require_kernel_shape);
  std::cout << describe(machine) << std::endl;
  auto rows = nlohmann::ordered_json::array();
  for (const auto& shape : shapes) {
    const auto inputs = bench::make_inputs(shape, routing, machine.device);
    const bench::Conditions conditions{.machine = machine, .routing = routing, .rounds = options.iterations};
    const auto measured = whole_op ? bench::measure_moe_mlp(inputs, conditions, options.dump)
                                   : bench::measure_kernels(options.name, inputs, conditions);
    std::cout << '\n' << measured.text << std::flush;
    rows.insert(rows.end(), measured.rows.begin(), measured.rows.end());
  }
  if (!options.json.empty())
    write_file_atomic(options.json,
                      bench::evidence(options.name, machine, command_of(options), sources, std::move(rows)).dump(1) + "\n");
}

}  // namespace

void add_bench(CLI::App& app, int&) {
  auto* command =
      app.add_subcommand("bench", "Check and time the kernels of the MoE MLP on the GPU, or on the CPU without one");
  auto options = std::make_shared<BenchOptions>();
  command
      ->add_option("name", options->name,
                   "moe_mlp: forward and backward, then each kernel; grouped_gemm, gather_sum, routing: these kernels alone")
      ->required()
      ->check(CLI::IsMember({"moe_mlp", "grouped_gemm", "gather_sum", "routing"}));
  command
      ->add_option("--shapes", options->shapes,
                   "T,D,F,E,K: tokens, model width, expert width, experts, experts per token; several with ';' between; "
                   "'published' or one of its names for those of the README")
      ->required();
  command->add_option("--routing", options->routing, "Experts of the tokens: random, balanced, skewed or one (takes all)")
      ->capture_default_str();
  command
      ->add_option(
          "--family", options->family,
          "Kernels of the grouped GEMMs: hopper, or portable (mma.sync), which every GPU from compute capability 8.0 on "
          "runs; without it the GPU's own")
      ->check(CLI::IsMember({"hopper", "portable"}));
  command->add_option("--iterations", options->iterations, "Runs of each variant; 0 = what fills 0.3 s, from 10 to 100")
      ->capture_default_str()
      ->check(in_range(0, 1000000));
  command->add_option("--json", options->json, "Write an evidence file");
  command->add_option("--dump", options->dump, "Write inputs, output and gradients of moe_mlp to this folder, as safetensors");
  command->footer("Example:\n  scatterlm bench moe_mlp --shapes '7B-fine;4096,1024,512,32,4' --routing skewed");
  command->callback([options] { run_bench(*options); });
}

}  // namespace scatterlm
