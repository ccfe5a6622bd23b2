#include "lib/report/html_report.h"

#include <fmt/chrono.h>

#include <ctime>
#include <filesystem>
#include <map>

#include "lib/config/difference.h"
#include "lib/config/load.h"
#include "lib/io/json.h"
#include "lib/nn/model_size.h"
#include "lib/report/page/assets.h"
#include "lib/train/flops.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPoints = 4000;
constexpr const char* kCurves[] = {"loss",    "val_loss",  "val_bpb", "tok_s",         "mfu",
                                   "mem_gib", "grad_norm", "lr",      "load_max_mean", "nonfinite_steps"};

double number_or(const nlohmann::json& line, const char* key, double absent) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : absent;
}

/// The lines of metrics.jsonl; none of a run that has not reported yet.
std::vector<nlohmann::json> read_metrics(const std::string& path) {
  std::vector<nlohmann::json> lines;
  if (!path_exists(path)) return lines;
  const std::string content = read_file(path);
  std::string_view text = content;
  for (size_t end; (end = text.find('\n')) != text.npos;
       text.remove_prefix(end + 1)) {  // what follows the last one is unfinished
    const std::string where = fmt::format("{}:{}", path, lines.size() + 1);
    auto line = parse_json(text.substr(0, end), where);
    const JsonFields fields{line, where};
    fields.count("step");
    fields.count("tokens");
    fields.list("routers");
    lines.push_back(std::move(line));
  }
  return lines;
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

}  // namespace

Json run_curves(const std::string& run_dir) {
  const std::string yaml_path = run_dir + "/config.yaml";
  if (!path_exists(yaml_path)) fail_user("{}: is not a run folder: it holds no config.yaml", run_dir);
  const Config config = load_config(yaml_path);
  const auto size = nn::model_size(config.model);
  auto name = std::filesystem::path(run_dir).lexically_normal();
  if (!name.has_filename()) name = name.parent_path();
  const std::string environment = run_dir + "/environment.txt";
  Json run{{"name", name.filename().string()},
           {"path", run_dir},
           {"environment", path_exists(environment) ? read_file(environment) : ""},
           {"config", read_file(yaml_path)},
           {"model", describe_model(config)},
           {"total_parameters", size.total},
           {"active_parameters", size.active},
           {"flops_per_token", nn::flops_per_token(config.model, config.train.sequence_length)},
           {"total_steps", total_steps(config.train)}};
  for (const char* key : {"step", "tokens", "seconds"}) run[key] = Json::array();
  for (const char* key : kCurves) run[key] = Json::array();
  Json routers = Json::array(), tasks = Json::object();

  const auto lines = read_metrics(run_dir + "/metrics.jsonl");
  const size_t every = lines.size() / kMostPoints + 1;
  double seconds = 0;
  int64_t step = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& line = lines[i];
    const int64_t last = std::exchange(step, line["step"].get<int64_t>());
    seconds += number_or(line, "step_ms", 0) / 1000 * static_cast<double>(step - last);
    const auto results = task_results(line);
    const bool evaluated = !results.empty() || (line.contains("val_loss") && line["val_loss"].is_number());
    if (i % every != 0 && i + 1 != lines.size() && !evaluated) continue;
    run["step"].push_back(step);
    run["tokens"].push_back(line["tokens"].get<int64_t>());
    run["seconds"].push_back(seconds);
    for (const char* key : kCurves) run[key].push_back(line.contains(key) && line[key].is_number() ? Json(line[key]) : Json());
    for (const auto& [task, accuracy] : results) {
      auto& values = tasks[task];
      while (values.size() + 1 < run["step"].size()) values.push_back(nullptr);
      values.push_back(accuracy);
    }
    size_t index = 0;
    for (const auto& router : line["routers"]) {
      if (index == routers.size())
        routers.push_back({{"name", JsonFields{router, run_dir + "/metrics.jsonl"}.text("name")},
                           {"load_max_mean", std::vector<Json>(run["step"].size() - 1)}});
      auto& loads = routers[index++]["load_max_mean"];
      loads.push_back(router.contains("load_max_mean") ? Json(router["load_max_mean"]) : Json());
    }
  }
  for (auto& values : tasks)
    while (values.size() < run["step"].size()) values.push_back(nullptr);
  run["tasks"] = std::move(tasks);
  run["routers"] = std::move(routers);
  return run;
}

std::string html_report(const std::vector<std::string>& run_dirs) {
  if (page::plotly().empty())
    fail_user(
        "this program was built without plotly.js, which draws the charts: install it (pip install plotly into .venv), and "
        "configure and build again");
  Json runs = Json::array();
  std::vector<Config> configs;
  for (const auto& run_dir : run_dirs) {
    runs.push_back(run_curves(run_dir));
    configs.push_back(load_config(run_dir + "/config.yaml"));
  }
  const std::time_t now = std::time(nullptr);
  const Json data{{"written", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now))},
                  {"version", SCATTERLM_VERSION},
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
