#include "lib/report/html_report.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "app/commands.h"
#include "lib/util/escape.h"
#include "lib/util/file.h"
#include "lib/util/text.h"

namespace scatterlm {

void add_report(CLI::App& app, int&) {
  struct Options {
    std::vector<std::string> runs;
    std::string out = "report.html";
  };
  auto* command = app.add_subcommand("report", "Write curves, figures and configurations of runs as one HTML page");
  auto options = std::make_shared<Options>();
  command->add_option("runs", options->runs, "Run folders, of running jobs too, and folders of `scatterlm compare`")
      ->required();
  command->add_option("-o,--out", options->out, "File to write; one that is there is replaced")->capture_default_str();
  command->footer(
      "Example:\n  scatterlm report runs/dense runs/moe -o report.html\n  scatterlm report runs/compare-tiny_dense-tiny_moe");
  command->callback([options] {
    const auto page = html_report(options->runs);
    write_file_atomic(options->out, page);
    std::cout << fmt::format("{}: {}, opens without a network\n", escape_control(options->out),
                             format_bytes(static_cast<double>(page.size())));
  });
}

}  // namespace scatterlm
