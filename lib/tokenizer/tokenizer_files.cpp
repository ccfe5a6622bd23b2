#include "lib/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "lib/tokenizer/bpe_tokenizer.h"
#include "lib/tokenizer/read_tokenizer.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/file_error.h"
#include "lib/util/hash.h"
#include "lib/util/similar_path.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kLargestFile = 64 << 20;  // bounds the memory for its JSON; the largest published ones have 35 MB
constexpr const char* kJson = "tokenizer.json";
constexpr const char* kVocabulary = "vocab.json";
constexpr const char* kMergeList = "merges.txt";
constexpr const char* kExpected = "tokenizer.json, vocab.json and merges.txt, or one .tiktoken file";

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) fail_file(folder.string(), "open", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

bool has_name(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Which files of a folder are its tokenizer; none if there is none.
std::vector<std::string> choose_files(const std::string& folder, const std::vector<std::string>& names) {
  if (has_name(names, kJson)) return {kJson};
  if (has_name(names, kVocabulary) && has_name(names, kMergeList)) return {kMergeList, kVocabulary};
  std::vector<std::string> tiktoken;
  for (const std::string& name : names)
    if (name.ends_with(".tiktoken")) tiktoken.push_back(name);
  if (tiktoken.size() > 1) fail_user("{}: holds several .tiktoken files; name one", folder);
  return tiktoken;
}

std::string read_limited_file(const fs::path& path) {
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) fail_user("{}: cannot open: not a regular file", path.string());
  const uintmax_t size = fs::file_size(path, error);
  if (!error && size > kLargestFile) fail_user("{}: is larger than {} MiB, no tokenizer is", path.string(), kLargestFile >> 20);
  return read_file(path.string());
}

}  // namespace

std::string TokenizerFiles::hash() const {
  if (content.empty()) return hash_hex("bytes");
  Hash hash;
  for (const auto& [name, text] : content) {
    const std::string header = fmt::format("{} {}\n", name, text.size());
    hash.add(header.data(), header.size());
    hash.add(text.data(), text.size());
  }
  return hash.hex();
}

bool names_tokenizer_json(const std::string& path) {
  const std::string file = fs::path(path).filename().string();
  return file.ends_with(".json") && file != kVocabulary;
}

TokenizerFiles find_tokenizer(const std::string& folder, const std::map<std::string, std::string>& files) {
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.first);
  TokenizerFiles tokenizer{.folder = folder, .content = {}};
  for (const std::string& name : choose_files(folder, names)) tokenizer.content[name] = files.at(name);
  return tokenizer;
}

TokenizerFiles read_tokenizer_files(const std::string& name) {
  if (name == "bytes") return {};
  const fs::path path(name);
  std::error_code unreadable;  // opening it says why
  const auto status = fs::status(path, unreadable);
  if (status.type() == fs::file_type::not_found)
    fail_user("unknown tokenizer '{}': neither bytes nor a file or folder{}", name, explain_missing_path(name));
  TokenizerFiles files;
  std::vector<std::string> names;
  if (fs::is_directory(status)) {
    files.folder = name;
    names = choose_files(name, names_in(name));
    if (names.empty()) fail_user("{}: holds no tokenizer: {}", name, kExpected);
  } else {
    const std::string file = path.filename().string();
    files.folder = path.has_parent_path() ? path.parent_path().string() : ".";
    if (file == kVocabulary || file == kMergeList) {
      names = {kMergeList, kVocabulary};
    } else if (file.ends_with(".json") || file.ends_with(".tiktoken")) {
      names = {file};
    } else if (file.ends_with(".model")) {
      fail_user("{}: SentencePiece's files are not supported; if it is tiktoken's list, copy it to llama3.tiktoken", name);
    } else {
      fail_user("{}: is none of the files of a tokenizer: {}", name, kExpected);
    }
  }
  for (const std::string& file : names) {
    const bool is_json = names_tokenizer_json(file);
    if (is_json) files.json_name = file;
    files.content[is_json ? kJson : file] = read_limited_file(fs::path(files.folder) / file);
  }
  return files;
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerFiles& files) {
  if (files.content.empty()) return std::make_unique<ByteTokenizer>();
  const auto path = [&](const std::string& name) { return (fs::path(files.folder) / name).string(); };
  const auto& [name, text] = *files.content.begin();
  if (files.content.size() == 2) {
    return std::make_unique<BpeTokenizer>(read_vocabulary_and_merges(
        files.content.at(kVocabulary), files.content.at(kMergeList), path(kVocabulary), path(kMergeList)));
  }
  return std::make_unique<BpeTokenizer>(name == kJson ? read_tokenizer_json(text, path(files.json_name))
                                                      : read_tiktoken(text, path(name)));
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) { return make_tokenizer(read_tokenizer_files(name)); }

}  // namespace scatterlm
