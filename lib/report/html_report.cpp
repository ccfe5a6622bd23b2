#include "lib/report/html_report.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>

#include "lib/config/difference.h"
#include "lib/config/load.h"
#include "lib/io/json.h"
#include "lib/nn/model_size.h"
#include "lib/report/loss_comparison.h"
#include "lib/report/metrics.h"
#include "lib/report/page/assets.h"
#include "lib/train/flops.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostPoints = 4000;
constexpr const char* kCurves[] = {"loss",    "val_loss",  "val_bpb", "tok_s",         "mfu",
                                   "mem_gib", "grad_norm", "lr",      "load_max_mean", "nonfinite_steps"};

/// A number, or null.
Json number_of(const nlohmann::json& object, const std::string& key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? Json(*found) : Json();
}

/// Appends the value of point number `points`; those before it that are missing are null.
void append(Json& values, size_t points, const Json& value) {
  while (values.size() + 1 < points) values.push_back(nullptr);
  values.push_back(value);
}

/// Accuracies of a line by task: acc_norm.
std::map<std::string, double> task_results(const nlohmann::json& line) {
  constexpr std::string_view kBegin = "task/", kEnd = "/acc_norm";
  std::map<std::string, double> results;
  for (const auto& [key, value] : line.items())
    if (key.starts_with(kBegin) && key.ends_with(kEnd) && value.is_number())
      results[key.substr(kBegin.size(), key.size() - kBegin.size() - kEnd.size())] = value.get<double>();
  return results;
}

/// Text between script tags ends at the first "</", wherever it stands.
std::string for_script(std::string text) {
  for (size_t at = 0; (at = text.find("</", at)) != text.npos; at += 3) text.replace(at, 2, "<\\/");
  for (size_t at = 0; (at = text.find("<!--", at)) != text.npos; at += 9) text.replace(at, 4, "<\\u0021--");
  return text;
}

void fill(std::string& page, std::string_view place, std::string_view text) {
  const std::string mark = fmt::format("<!--{}-->", place);
  page.replace(page.find(mark), mark.size(), text);
}

/// Keys in which a configuration differs from the first one, with the values of all.
Json differing_keys(const std::vector<Config>& configs) {
  Json rows = Json::array();
  for (size_t i = 1; i < configs.size(); ++i) {
    for (const auto& difference : differences(configs[0], configs[i])) {
      if (difference.key.starts_with("run.")) continue;
      auto row = std::find_if(rows.begin(), rows.end(), [&](const Json& known) { return known["key"] == difference.key; });
      if (row == rows.end())
        row = rows.insert(rows.end(), Json{{"key", difference.key}, {"values", std::vector(configs.size(), difference.first)}});
      (*row)["values"][i] = difference.second;
    }
  }
  return rows;
}

/// What a run folder says of its run. The keys are those that page/page.js reads.
class RunCurves {
 public:
  RunCurves(const std::string& run_dir, const Config& config) : path_(run_dir + "/metrics.jsonl") {
    const auto size = nn::model_size(config.model);
    auto name = std::filesystem::path(run_dir).lexically_normal();
    if (!name.has_filename()) name = name.parent_path();
    const std::string environment = run_dir + "/environment.txt";
    run_ = {{"name", name.filename().string()},
            {"path", run_dir},
            {"environment", path_exists(environment) ? read_file(environment) : ""},
            {"config", read_file(run_dir + "/config.yaml")},
            {"model", describe_model(config)},
            {"total_parameters", size.total},
            {"active_parameters", size.active},
            {"flops_per_token", nn::flops_per_token(config.model, config.train.sequence_length)},
            {"total_steps", total_steps(config.train)}};
    for (const char* key : {"step", "tokens", "seconds"}) run_[key] = Json::array();
    for (const char* key : kCurves) run_[key] = Json::array();
    if (path_exists(path_)) read_metrics(config.log.interval);
    for (auto* lists : {&tasks_, &loads_})
      for (auto& [unused, values] : *lists)
        while (values.size() < run_["step"].size()) values.push_back(nullptr);
    run_["tasks"] = tasks_;
    run_["routers"] = Json::array();
    for (const auto& router : routers_) run_["routers"].push_back(Json{{"name", router}, {"load_max_mean", loads_[router]}});
  }

  Json json() && { return std::move(run_); }

 private:
  /// Of more than kMostPoints lines, every n-th, the last one and those with an evaluation are kept.
  void read_metrics(int64_t interval) {
    const std::string content = read_file(path_);
    std::string_view text = content;
    const auto lines = std::ranges::count(text, '\n');  // what follows the last one is being written
    const auto every = lines / kMostPoints + 1;
    for (int64_t i = 0; i < lines; ++i) {
      const size_t end = text.find('\n');
      const std::string where = fmt::format("{}:{}", path_, i + 1);
      const auto line = parse_json(text.substr(0, end), where);
      text.remove_prefix(end + 1);
      const JsonFields fields{line, where};
      const int64_t step = fields.count("step");
      // A run that went on from another one's checkpoint reports its first interval only.
      if (i == 0) time_.step = std::max<int64_t>(0, step - interval);
      const auto step_ms = number_of(line, "step_ms");
      time_.add(step, step_ms.is_number() ? step_ms.get<double>() : 0);
      const auto results = task_results(line);
      const bool evaluated = !results.empty() || number_of(line, "val_loss").is_number();
      if (i % every == 0 || i + 1 == lines || evaluated) add_point(line, fields, results);
    }
  }

  void add_point(const nlohmann::json& line, const JsonFields& fields, const std::map<std::string, double>& results) {
    run_["step"].push_back(time_.step);
    run_["tokens"].push_back(fields.count("tokens"));
    run_["seconds"].push_back(time_.seconds);
    const size_t points = run_["step"].size();
    for (const char* key : kCurves) run_[key].push_back(number_of(line, key));
    for (const auto& [task, accuracy] : results) append(tasks_[task], points, accuracy);
    for (const auto& router : fields.list("routers")) {
      const auto name = JsonFields{router, fields.where}.text("name");
      if (!loads_.contains(name)) routers_.push_back(name);
      append(loads_[name], points, number_of(router, "load_max_mean"));
    }
  }

  std::string path_;
  Json run_;
  StepTime time_;
  std::vector<std::string> routers_;  ///< in the order of the layers
  std::map<std::string, Json> tasks_, loads_;
};

Config config_of(const std::string& run_dir) {
  if (path_exists(run_dir + "/manifest.json")) fail_user("{}: is a checkpoint; give the folder of its run", run_dir);
  const std::string path = run_dir + "/config.yaml";
  if (!path_exists(path)) fail_user("{}: is not a run folder: it holds no config.yaml", run_dir);
  return load_config(path);
}

/// The comparison.json that a path names, itself or by its folder; empty if it names none.
std::string comparison_at(const std::string& path) {
  if (is_folder(path)) return path_exists(path + "/comparison.json") ? path + "/comparison.json" : "";
  return path.ends_with(".json") ? path : "";
}

/// What page/page.js shows of a comparison.json: `sweep`, `failed` runs, and `rows` of names and figures once it is complete.
Json comparison_table(const nlohmann::json& comparison, const std::string& path) {
  Json rows = Json::array();
  const bool complete = comparison.value("complete", false);
  for (const auto& row : JsonFields{comparison, path}.list("rows")) {
    Json shown{{"name", JsonFields{row, path}.text("name")}, {"best", row.contains("best") ? row["best"] : nlohmann::json()}};
    for (const char* key :
         {"val_loss", "val_loss_min", "val_loss_max", "val_loss_above_first", "val_bpb", "tokens", "tokens_to_first_loss",
          "tokens_share", "seconds_to_first_loss", "seconds_share", "trained_tok_s", "tok_s", "step_ms", "mfu", "peak_gib",
          "total_parameters", "active_parameters", "flops_per_token", "load_max_mean"})
      shown[key] = number_of(row, key);
    if (complete) rows.push_back(std::move(shown));
  }
  return {{"path", path},
          {"sweep", comparison.contains("sweep") ? comparison["sweep"] : nlohmann::json()},
          {"failed", failed_runs(comparison, path)},
          {"rows", rows}};
}

/// Folders of the runs with the best value of each model, or, while it is not complete, of all that have begun.
std::vector<std::string> compared_runs(const nlohmann::json& comparison, const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::vector<std::string> run_dirs;
  for (const auto& row : JsonFields{comparison, path}.list("rows")) {
    for (const auto& run : JsonFields{row, path}.list("runs")) {
      const auto run_dir = (folder / JsonFields{run, path}.text("folder")).string();
      const bool chosen = !row.contains("best") || !run.contains("value") || row["best"] == run["value"];
      if (chosen && path_exists(run_dir + "/config.yaml")) run_dirs.push_back(run_dir);
    }
  }
  return run_dirs;
}

}  // namespace

std::string html_report(const std::vector<std::string>& paths) {
  if (page::plotly().empty())
    fail_user(
        "this program was built without plotly.js, which draws the charts: install it (pip install plotly into .venv), and "
        "configure and build again");
  Json runs = Json::array();
  std::vector<std::string> run_dirs;
  Json comparisons = Json::array();
  for (const auto& path : paths) {
    const auto comparison_path = comparison_at(path);
    if (comparison_path.empty()) {
      run_dirs.push_back(path);
      continue;
    }
    const auto comparison = parse_json(read_file(comparison_path), comparison_path);
    comparisons.push_back(comparison_table(comparison, comparison_path));
    std::ranges::copy(compared_runs(comparison, comparison_path), std::back_inserter(run_dirs));
  }
  std::vector<Config> configs;
  for (const auto& run_dir : run_dirs) {
    configs.push_back(config_of(run_dir));
    runs.push_back(RunCurves(run_dir, configs.back()).json());
  }
  const std::time_t now = std::time(nullptr);
  const Json data{{"written", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now))},
                  {"version", SCATTERLM_VERSION},
                  {"comparisons", std::move(comparisons)},
                  {"runs", std::move(runs)},
                  {"differences", differing_keys(configs)}};
  std::string html(page::html());
  fill(html, "STYLE", page::css());
  fill(html, "PLOTLY", page::plotly());
  fill(html, "DATA", for_script(data.dump(-1, ' ', false, Json::error_handler_t::replace)));
  fill(html, "SCRIPT", page::js());
  return html;
}

}  // namespace scatterlm
