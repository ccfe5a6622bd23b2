// A tokenizer as it lies on disk, and travels with token files, runs and checkpoints.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "lib/tokenizer/tokenizer.h"

namespace scatterlm {

/// tokenizer.json, or vocab.json and merges.txt, or one .tiktoken file; none for the byte tokenizer.
struct TokenizerFiles {
  std::string folder;                          ///< that holds them
  std::map<std::string, std::string> content;  ///< by file name
  std::string json_name = "tokenizer.json";    ///< what that one is called in the folder

  /// Of names and contents. Two tokenizers with the same one give the same tokens.
  std::string hash() const;
};

/// The tokenizer among other files of `folder`, by the same rules as in a folder on disk; none if there is none.
TokenizerFiles find_tokenizer(const std::string& folder, const std::map<std::string, std::string>& files);

/// `name`: "bytes", one of these files, or a folder that holds them. Throws Error if it is none of them.
TokenizerFiles read_tokenizer_files(const std::string& name);

/// Whether read_tokenizer_files() takes a file of this name for a tokenizer.json: any that ends in .json, except vocab.json.
bool names_tokenizer_json(const std::string& path);

/// Throws Error naming file, place and value for one that is damaged or of a kind that is not supported.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerFiles& files);
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace scatterlm
