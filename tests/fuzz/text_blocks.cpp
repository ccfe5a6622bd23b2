// A text file: JSON lines, gzip or Zstandard, as the first byte says; every block is read.
#include "lib/tokenizer/text_blocks.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace scatterlm;
  static const fuzz::InputFile lines("a.jsonl"), gzip("a.gz"), zstandard("a.jsonl.zst");
  if (size == 0) return 0;
  const std::string& path = (data[0] == 'g' ? gzip : data[0] == 'z' ? zstandard : lines).write(fuzz::text(data + 1, size - 1));
  fuzz::accept_or_throw_error([&] {
    const ByteTokenizer tokenizer;
    TextBlockReader reader({.paths = {path}}, tokenizer);
    while (const auto block = reader.next()) {
      if (block->end > block->text.size()) std::abort();
      if (block->kind == TextBlock::kLines) for_each_json_text(*block, "text", [](std::string_view) {});
    }
  });
  return 0;
}
