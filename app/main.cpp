#include <c10/core/AutogradState.h>
#include <c10/util/Logging.h>
#include <malloc.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "app/command_line.h"
#include "app/commands.h"
#include "app/failure.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"
#include "lib/util/output.h"
#include "lib/util/stop_signals.h"
#include "lib/util/text.h"
#include "lib/util/version/version.h"

namespace {

/// OpenMP's threads spin while they wait, which is right on an idle machine and ruinous on a busy one: with two other programs
/// on two cores a step took 50 times as long as with a short spin. libgomp reads its environment when it is loaded, and glibc
/// sets up `environ` only after .preinit_array, so the program replaces itself once, before LibTorch is initialised, with
/// GOMP_SPINCOUNT set. A caller who chose GOMP_SPINCOUNT or OMP_WAIT_POLICY keeps it. Where it fails, threads spin for longer.
///
/// Signals to stop are held back from here on: main() says what becomes of them, and the libraries take tenths of a second.
void start_with_short_spins(int, char** argv, char** environment) {
  scatterlm::block_stop_signals();
  std::vector<char*> with_spins;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    if (variable.starts_with("GOMP_SPINCOUNT=") || variable.starts_with("OMP_WAIT_POLICY=")) return;  // also the second time
    with_spins.push_back(*environment);
  }
  char spins[] = "GOMP_SPINCOUNT=1000";
  with_spins.insert(with_spins.end(), {spins, nullptr});
  char program[PATH_MAX];  // resolved: executing /proc/self/exe would name the process "exe"
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0 || getauxval(AT_BASE) == 0)
    return;  // the latter: started as an argument of ld.so, which /proc/self/exe is then
  program[length] = '\0';
  execve(program, argv, with_spins.data());
}
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)(int, char**, char**) = start_with_short_spins;

/// Whether this is a run, whose results are files: it saves and ends at a signal, and goes on when nobody reads its stdout.
bool is_run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  return command == "train" || command == "launch";
}

/// Before any thread starts.
void set_up_signals(bool run) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its limit (ulimit -f) is a failed write, with a message
  if (run) {
    std::signal(SIGPIPE, SIG_IGN);
  } else {
    scatterlm::unblock_stop_signals();
  }
}

/// Runs the command.
void parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) scatterlm::fail_user("{}", scatterlm::explain(app, error));
    app.exit(error);  // --help, --version
    scatterlm::require_printed();
  }
}

/// Ends without the destructors of libraries: those of CUDA would wait for a collective that other ranks never join.
[[noreturn]] void end_after_error(std::string_view text, int code) {
  scatterlm::log_error(text);
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace scatterlm;
  set_up_signals(is_run(argc, argv));
  // c10d logs every connection that it tries again, with its stack; what fails in the end, our own errors say.
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
  CLI::App app{"Trains Mixture-of-Experts language models. Help on a command: scatterlm COMMAND --help"};
  app.name("scatterlm");
  app.footer("Example:\n  scatterlm train configs/quickstart.yaml");
  app.set_version_flag("--version", [] { return version_text(); });
  app.require_subcommand(1);
  // Activations of a step are freed and allocated again in the next: glibc would map and unmap them each time (a tenth of a
  // step).
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  // A process has one GPU: backward runs in this thread, not in one that must be woken for it (0.3 ms) and waited for.
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  int exit_code = kExitDone;
  try {
    add_train(app, exit_code);
    add_launch(app, exit_code);
    add_eval(app, exit_code);
    add_generate(app, exit_code);
    add_data(app, exit_code);
    add_tokenize(app, exit_code);
    add_detokenize(app, exit_code);
    add_tokenizer(app, exit_code);
    add_checkpoint(app, exit_code);
    add_import(app, exit_code);
    add_export(app, exit_code);
    add_config(app, exit_code);
    add_bench(app, exit_code);
    add_compare(app, exit_code);
    add_plan(app, exit_code);
    add_report(app, exit_code);
    add_doctor(app, exit_code);
    check_subcommands(app, argc, argv);
    parse(app, argc, argv);
    if (!is_run(argc, argv)) require_printed();
  } catch (const std::exception& error) {
    const auto failure = explain_failure(error, app.got_subcommand("train") || app.got_subcommand("compare"));
    end_after_error(failure.text, failure.code);
  }
  return exit_code;
}
