// What CLI11 leaves open: clear messages about a wrong command line.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace scatterlm {

/// Throws Error where a word stands in place of a subcommand and is none, or where one is missing.
void check_subcommands(const CLI::App& app, int argc, char** argv);

/// Says what is wrong and where help is.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

/// For ->check(): a number in [low, high]; high may be infinite.
CLI::Validator in_range(double low, double high);
CLI::Validator at_least(double low);

/// Keeps the options of a command as long as it lives, also where launch replaces the callback that holds them otherwise.
void keep_options(CLI::App& command, std::shared_ptr<void> options);

/// --threads of a command that runs a trained model.
void add_threads(CLI::App& command, std::optional<int64_t>& threads);

}  // namespace scatterlm
