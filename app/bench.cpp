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
  std::string shapes, family, json, dump;
  std::string routing = "random";
  int64_t iterations = 0;
};

/// What another person types for the same figures.
std::string command_of(const bench::Bench& bench, const BenchOptions& options) {
  auto command = fmt::format("scatterlm bench {} --shapes '{}'", bench.name, options.shapes);
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

void run_bench(const bench::Bench& bench, const BenchOptions& options) {
  const auto measurements = bench.parse(options.shapes);
  const auto routing = bench::parse_routing(options.routing);
  const auto sources = source_hash(SourceSet::kKernels);
  if (!options.json.empty()) bench::require_evidence(options.json, sources);
  if (!options.dump.empty()) make_folder(options.dump);

  const auto machine = bench::find_machine(options.family);
  std::cout << describe(machine) << std::endl;
  const bench::Conditions conditions{
      .machine = machine, .routing = routing, .rounds = options.iterations, .dump = options.dump};
  auto rows = nlohmann::ordered_json::array();
  for (const auto& measurement : measurements) {
    const auto measured = measurement.run(conditions);
    std::cout << '\n' << bench.name << ' ' << measurement.shape << '\n' << measured.text << std::flush;
    rows.insert(rows.end(), measured.rows.begin(), measured.rows.end());
  }
  if (!options.json.empty())
    write_file_atomic(
        options.json,
        bench::evidence(bench.name, machine, command_of(bench, options), sources, std::move(rows)).dump(1) + "\n");
}

void add_shapes_bench(CLI::App& parent, const bench::Bench& bench) {
  auto* command = parent.add_subcommand(bench.name, bench.help);
  auto options = std::make_shared<BenchOptions>();
  command
      ->add_option(
          "--shapes", options->shapes,
          "T,D,F,E,K: tokens, model width, expert width, experts, experts per token; moa and parallel_linear: "
          "B,S,D,E,K,heads: sequences, their length, model width, experts, experts per token, heads (of width 128) per expert; "
          "rms_norm: T,D; qk_norm_rope: B,S,H,Hkv,P: sequences, their length, query heads, key-value heads, head width; "
          "cross_entropy: T,V: tokens, vocabulary; "
          "or a name in the README's table; or a set of shapes: published (those of the README), granularity, sparsity, "
          "rounding, inference; several with ';' between")
      ->required();
  if (bench.has_experts) {
    command
        ->add_option(
            "--routing", options->routing,
            "How tokens choose experts: random, balanced, skewed, collapsed (nearly all choose the same K), or one (all rows to one)")
        ->capture_default_str();
  }
  if (bench.has_families) {
    command
        ->add_option(
            "--family", options->family,
            "Kernels of the grouped GEMMs: hopper, or portable (mma.sync), which every GPU from compute capability 8.0 on "
            "runs; default: those for this GPU")
        ->check(CLI::IsMember({"hopper", "portable"}));
  }
  command
      ->add_option("--iterations", options->iterations, "Runs of each variant; 0 = as many as fit into 0.3 s, from 10 to 100")
      ->capture_default_str()
      ->check(in_range(0, 1000000));
  command->add_option("--json", options->json, "Write an evidence file");
  if (bench.dumps)
    command->add_option("--dump", options->dump, "Write inputs, outputs and gradients to this folder, as safetensors");
  command->footer(fmt::format("Example:\n  scatterlm bench {} --shapes published{}", bench.name,
                              bench.has_experts ? " --routing skewed" : ""));
  command->callback([&bench, options] { run_bench(bench, *options); });
}

}  // namespace

void add_bench(CLI::App& app, int&) {
  auto* command =
      app.add_subcommand("bench", "Check and time ops and their kernels, or decoding, on the GPU, or on the CPU without one");
  command->require_subcommand(1);
  for (const auto& bench : bench::all_benches()) add_shapes_bench(*command, bench);
  add_bench_decode(*command);
  command->footer("Example:\n  scatterlm bench moe_mlp --shapes '7B-fine;4096,1024,512,32,4' --routing skewed");
}

}  // namespace scatterlm
