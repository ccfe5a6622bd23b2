// One function per subcommand; the callback it installs does the work and sets `exit_code`.
#pragma once

namespace CLI {
class App;
}

namespace scatterlm {

void add_train(CLI::App& app, int& exit_code);
void add_launch(CLI::App& app, int& exit_code);
void add_eval(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_data(CLI::App& app, int& exit_code);
void add_checkpoint(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_config(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);

}  // namespace scatterlm
