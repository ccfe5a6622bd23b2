#pragma once
#include <cstdint>
#include <string>

#include "lib/data/token_type.h"
#include "lib/util/mapped_file.h"

namespace scatterlm {

/// PREFIX.idx of Megatron-LM: where sequences and documents lie in PREFIX.bin, which is bare tokens.
/// Sequences follow each other without gaps, so the .bin is one stream and only the documents matter here.
class MegatronIndex {
 public:
  /// True if `path` is a readable file that begins with the magic number.
  static bool is_index(const std::string& path);

  /// Maps the file and checks every number in it. Throws Error naming the file and what is wrong.
  explicit MegatronIndex(const std::string& path);

  TokenType type() const { return type_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return num_documents_; }
  /// Position of the first token of a document; of the end for num_documents().
  int64_t document_begin(int64_t document) const;
  const MappedFile& file() const { return file_; }

 private:
  void check_sequences(const std::string& path);
  void check_documents(const std::string& path) const;

  MappedFile file_;
  TokenType type_ = TokenType::kU16;
  int64_t num_sequences_ = 0;
  int64_t num_documents_ = 0;
  int64_t num_tokens_ = 0;
  const std::byte* lengths_ = nullptr;    ///< int32 [sequences], tokens
  const std::byte* pointers_ = nullptr;   ///< int64 [sequences], bytes
  const std::byte* documents_ = nullptr;  ///< int64 [documents + 1], sequence numbers
};

}  // namespace scatterlm
