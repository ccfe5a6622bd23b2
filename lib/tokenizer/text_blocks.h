// Text files in blocks of a bounded size, each of which can be turned into tokens by itself.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/tokenizer/text_source.h"
#include "lib/tokenizer/tokenizer.h"

namespace scatterlm {

struct TextBlock {
  enum Kind {
    kText,  ///< a part of one document
    kLines  ///< JSON lines, each a document
  } kind = kText;
  std::string text;    ///< of a kText block also what follows it, as far as an encoder may want to see it
  size_t end = 0;      ///< of the block in `text`
  bool starts = true;  ///< a document begins with it
  bool ends = true;    ///< `text` is followed by no more of the document that an encoder may look at
  bool ends_document = true;
  std::string path;        ///< of the file
  int64_t first_line = 1;  ///< of a kLines block
};

class TextBlockReader {
 public:
  struct Options {
    std::vector<std::string> paths;
    bool lines = false;  ///< every file is JSON lines; otherwise those whose names say it (is_json_lines)
  };
  /// The tokenizer says where a long document may be cut; it must outlive the reader.
  TextBlockReader(Options options, const Tokenizer& tokenizer);

  /// In the order of the paths; nothing at the end. Throws Error naming a file that cannot be read.
  std::optional<TextBlock> next();
  int64_t file_bytes() const;  ///< read so far of all files

 private:
  void open_next();
  TextBlock next_text();
  TextBlock next_lines();

  Options options_;
  const Tokenizer& tokenizer_;
  size_t num_opened_ = 0;
  std::optional<TextSource> source_;
  bool lines_ = false;  ///< the open file
  bool starts_ = true;  ///< its next block begins it
  int64_t line_ = 1;    ///< of the next block
  std::string buffer_;  ///< read, not yet in a block
  int64_t closed_bytes_ = 0;
};

/// Calls visit(text) for the field of each line of a kLines block that is not empty. Throws Error naming the line.
void for_each_json_text(const TextBlock& block, const std::string& field, const std::function<void(std::string_view)>& visit);

/// Whether the name says so: .jsonl or .ndjson, perhaps compressed, or compressed .json, which published data sets use for it.
bool is_json_lines(const std::string& path);

}  // namespace scatterlm
