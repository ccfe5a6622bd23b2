// Text files to token files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

struct PrepareOptions {
  std::vector<std::string> inputs;      ///< files, and folders to search
  std::string glob = "*";               ///< file names to take from folders
  std::string out;                      ///< folder of the token files
  int64_t val_every = 0;                ///< hold out every n-th document; 0 = none
  std::vector<std::string> val_inputs;  ///< held-out files and folders, in place of val_every
  int64_t shard_tokens = 0;             ///< split the training tokens; 0 = one file, if it can hold them
  std::string tokenizer = "bytes";
  std::string field;                ///< of JSON lines; given, every input is that, else those with such a name are, with "text"
  bool special = false;             ///< names of special tokens in the text become these tokens
  std::string end_of_text;          ///< the token that ends a document; empty: the one that is known to
  int64_t threads = 0;              ///< 0 = all processors
  int64_t most_tokens = INT32_MAX;  ///< that a token file can hold
};

struct PreparedSplit {
  std::vector<std::string> files;
  int64_t documents = 0;
  int64_t tokens = 0;
};

struct Prepared {
  PreparedSplit train, validation;
  int64_t bytes = 0;  ///< of text
};

/// The files among `inputs`, and those in its folders whose names match, in the order in which prepare() takes them. Throws
/// Error for an input that is not there or cannot be read (text_source.h), or a folder without such a file.
std::vector<std::string> list_text_files(const std::vector<std::string>& inputs, const std::string& glob);

/// Each file, or line of a file of JSON lines, is a document: its tokens and an end-of-text token, whatever bytes it holds.
/// gzip and Zstandard files are decompressed. Memory does not grow with the text. Documents come in the order of
/// the inputs, within a folder by relative path, bytewise; document i (from 0) is held out if i % val_every == val_every - 1,
/// and so is every document of val_inputs.
/// Writes OUT/train.bin and OUT/val.bin. Training tokens become OUT/train_000000.bin and so on with shard_tokens, and either
/// kind where one file cannot hold them; a document may straddle shards. Beside them lies a copy of the tokenizer's files. All
/// of them appear at the end, or none; what an interrupted run has left in OUT is removed. Progress goes to stderr. Throws
/// Error (exit code 2) naming input or folder if a file cannot be read, OUT holds token files, or another process prepares
/// there.
Prepared prepare(const PrepareOptions& options);

}  // namespace scatterlm
