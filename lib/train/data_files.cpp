#include "lib/train/data_files.h"

#include <nlohmann/json.hpp>

#include "lib/io/json.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

using nlohmann::json;

std::vector<FileFingerprint> stored_files(const JsonFields& state) {
  std::vector<FileFingerprint> files;
  for (const json& file : state.list("data_files")) {
    const JsonFields fields{file, state.where + ": data_files"};
    files.push_back({.name = fields.text("name"),
                     .source = fields.count("source"),
                     .tokens = fields.count("tokens"),
                     .xxh3 = fields.text("xxh3"),
                     .tokenizer = ""});
  }
  return files;
}

std::string list_files(const char* key, const std::vector<FileFingerprint>& files) {
  std::string text;
  for (const FileFingerprint& file : files) text += fmt::format("{}[{}] = {}\n", key, file.source, describe(file));
  return text;
}

}  // namespace

json to_json(const std::vector<FileFingerprint>& files) {
  json list = json::array();
  for (const FileFingerprint& file : files)
    list.push_back({{"name", file.name}, {"source", file.source}, {"tokens", file.tokens}, {"xxh3", file.xxh3}});
  return list;
}

void check_same_data(const CheckpointReader& reader, const std::vector<FileFingerprint>& files, bool allow_change) {
  const json& state = reader.contents().state;
  if (!state.contains("data_files")) return;
  const std::string change = explain_change(stored_files({state, reader.path() + "/state.json"}), files);
  if (change.empty()) return;
  if (!allow_change) {
    fail_user(
        "{}: the files of data.train have changed since this checkpoint: {}; samples would be repeated or left out: bring the "
        "files back, or continue with --set data.allow_change=true",
        reader.path(), change);
  }
  log_warning(fmt::format("the files of data.train have changed since this checkpoint: {}; samples may be repeated or left out",
                          change));
}

std::string data_identity(const Loader& loader, const EvalReader* validation) {
  return list_files("data.train", loader.fingerprint()) + (validation ? data_identity(*validation) : "");
}

std::string data_identity(const EvalReader& validation) { return list_files("data.validation", validation.fingerprint()); }

}  // namespace scatterlm
