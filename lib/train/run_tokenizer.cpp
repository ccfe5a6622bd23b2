#include "lib/train/run_tokenizer.h"

#include <fmt/ranges.h>

#include "lib/io/json.h"
#include "lib/io/manifest.h"
#include "lib/train/checkpointing.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/log/log.h"

namespace scatterlm {

void check_tokenizer(const TokenizerFiles& tokenizer, const std::string& name, const std::vector<FileFingerprint>& files) {
  const std::string hash = tokenizer.hash();
  for (const FileFingerprint& file : files) {
    if (file.tokenizer.empty() || file.tokenizer == hash) continue;
    fail_user(
        "{}: was made with another tokenizer (hash {}) than 'data.tokenizer: {}' ({}); data prepare has put a copy of its own "
        "beside it: set data.tokenizer to its folder, or to bytes if there is none",
        file.name, file.tokenizer, name, hash);
  }
}

TokenizerFiles read_run_tokenizer(const Config& config, const std::vector<FileFingerprint>& files) {
  const std::string& name = config.data.tokenizer;
  auto tokenizer = read_tokenizer_files(name);
  check_tokenizer(tokenizer, name, files);
  if (tokenizer.content.empty()) return tokenizer;
  for (const auto& [file, text] : tokenizer.content) {
    if (!is_plain_file_name(file))
      fail_user(
          "'data.tokenizer: {}': checkpoints cannot hold a file named {}; rename it, with letters, digits, '.', '_' and '-' only",
          name, quote(file));
  }
  const auto made = make_tokenizer(tokenizer);
  const int64_t size = made->vocab_size(), eot = config.data.eot_token;
  if (size > config.model.vocab_size)
    fail_user("'data.tokenizer: {}' has {} tokens, 'model.vocab_size: {}' must not be below that", name, size,
              config.model.vocab_size);
  if (eot >= size) fail_user("'data.eot_token: {}' is none of the {} tokens of 'data.tokenizer: {}'", eot, size, name);
  if (made->eot() && eot >= 0 && eot != *made->eot())  // right for data of `data prepare --end-of-text`
    log_warning(fmt::format(
        "'data.eot_token: {}' is not the end of text of 'data.tokenizer: {}', which is {}: nothing may end a document", eot,
        name, *made->eot()));
  return tokenizer;
}

TokenizerFiles checkpoint_tokenizer(const CheckpointReader& checkpoint) {
  if (checkpoint_config(checkpoint).data.tokenizer == "bytes") return {};
  auto tokenizer = find_tokenizer(checkpoint.path(), checkpoint.contents().files);
  if (tokenizer.content.empty())
    fail_user("{}: its configuration names 'data.tokenizer: {}', but the checkpoint holds no tokenizer; import the model again",
              checkpoint.path(), checkpoint_config(checkpoint).data.tokenizer);
  return tokenizer;
}

std::map<std::string, std::string> files_of_run(const TokenizerFiles& tokenizer, const CheckpointReader* start) {
  auto files = tokenizer.content;
  if (!start) return files;
  const auto& travelling = start->contents().files;
  if (checkpoint_tokenizer(*start).hash() == tokenizer.hash()) {
    files.insert(travelling.begin(), travelling.end());
    return files;
  }
  std::vector<std::string> left;
  for (const auto& [name, text] : travelling)
    if (!files.contains(name)) left.push_back(name);
  if (!left.empty())
    log_warning(fmt::format("{}: came with another tokenizer than data.tokenizer; this run's checkpoints do not hold its {}",
                            start->path(), fmt::join(left, ", ")));
  return files;
}

void write_tokenizer(const TokenizerFiles& tokenizer, const std::string& folder) {
  for (const auto& [name, text] : tokenizer.content) write_file_atomic(folder + "/" + name, text);
}

}  // namespace scatterlm
