// One function per subcommand; the callback it installs does the work and sets `exit_code`.
#pragma once
#include <cstdint>

namespace CLI {
class App;
}

namespace scatterlm {

struct LaunchOptions;

void add_train(CLI::App& app, int& exit_code);
/// The same command, which only checks its options and configuration for the ranks of `options`, and sets the timeouts there.
void add_train_check(CLI::App& app, LaunchOptions& options);
void add_launch(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_data(CLI::App& app, int& exit_code);
void add_checkpoint(CLI::App& app, int& exit_code);
void add_import(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_config(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
/// `scatterlm bench decode`.
void add_bench_decode(CLI::App& bench);
void add_compare(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_tokenize(CLI::App& app, int& exit_code);
void add_detokenize(CLI::App& app, int& exit_code);
void add_tokenizer(CLI::App& app, int& exit_code);

}  // namespace scatterlm
