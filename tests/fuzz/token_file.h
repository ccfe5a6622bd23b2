#pragma once
#include "lib/data/token_file.h"
#include "tests/fuzz/fuzz.h"

namespace scatterlm::fuzz {

/// Opens the file; one that is accepted is read to its end.
inline void read_token_file(const std::string& path) {
  accept_or_throw_error([&] {
    const TokenFile file(path, TokenWidth::kUint16);
    std::vector<int64_t> tokens(static_cast<size_t>(file.num_tokens()));
    file.read(0, file.num_tokens(), int64_t{1} << 40, tokens.data());
    file.verify();
    file.sampled_hash();
    if (!file.documents()) return;
    for (int64_t document = 0; document <= file.documents()->num_documents(); ++document) {
      const int64_t begin = file.documents()->document_begin(document);
      if (begin < 0 || begin > file.num_tokens()) std::abort();
    }
  });
}

}  // namespace scatterlm::fuzz
