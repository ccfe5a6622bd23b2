#include "lib/data/llmc_format.h"
#include "lib/tasks/read_task.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

constexpr int32_t kTaskMagic = 20240522, kTaskVersion = 1;
constexpr int64_t kExampleMark = 65535;

int32_t header_field(std::string_view file, int64_t index) {
  return load_element<int32_t>(reinterpret_cast<const std::byte*>(file.data()), index);
}

/// The uint16 numbers of the examples, each read within limits.
class ExampleReader {
 public:
  ExampleReader(std::string_view file, const std::string& path) : file_(file), path_(path) {}

  bool at_end() const { return at_ == std::ssize(file_); }
  TaskExample read(int64_t index);

 private:
  template <class... Args>
  [[noreturn]] void fail_damaged(int64_t at, fmt::format_string<Args...> text, Args&&... args) const {
    fail_user("{}: damaged at byte {}: {}", path_, at, fmt::format(text, std::forward<Args>(args)...));
  }

  /// The next number, which must be from `low` to `high`.
  int64_t number(const char* what, int64_t low, int64_t high) {
    if (at_ + 2 > end_) fail_damaged(at_, "the file or its example {} ends before {}", index_, what);
    const int64_t value = load_element<uint16_t>(reinterpret_cast<const std::byte*>(file_.data()) + at_, 0);
    if (value < low || value > high)
      fail_damaged(at_, "{} of example {} is {}, must be from {} to {}", what, index_, value, low, high);
    at_ += 2;
    return value;
  }

  /// A number of tokens and the tokens.
  std::vector<uint32_t> tokens(const char* what) {
    const int64_t count = number(what, 1, (end_ - at_) / 2 - 1);
    std::vector<uint32_t> result;
    for (int64_t i = 0; i < count; ++i) result.push_back(static_cast<uint32_t>(number("a token", 0, kGpt2Tokens - 1)));
    return result;
  }

  std::string_view file_;
  const std::string& path_;
  int64_t at_ = kLlmcHeaderBytes, end_ = std::ssize(file_), index_ = 0;  // end_: of the example, or of the file between them
};

TaskExample ExampleReader::read(int64_t index) {
  index_ = index;
  const int64_t begin = at_;
  number("the mark", kExampleMark, kExampleMark);
  const int64_t bytes = number("the size in bytes", 0, kExampleMark);
  if (begin + bytes > std::ssize(file_))
    fail_user("{}: truncated: example {} at byte {} has {} bytes, the file ends {} bytes after its beginning", path_, index_,
              begin, bytes, std::ssize(file_) - begin);
  end_ = begin + bytes;
  number("the index", index, index);
  TaskExample example{.choices = {}, .answer = number("the label", 0, kMostChoices - 1)};
  const int64_t count = number("the number of choices", std::max<int64_t>(2, example.answer + 1), kMostChoices);
  const auto context = tokens("the size of the context");
  for (int64_t i = 0; i < count; ++i) {
    const auto choice = tokens("the size of a choice");
    example.choices.push_back({context, std::ssize(context), static_cast<double>(choice.size())});
    auto& row = example.choices.back().tokens;
    row.insert(row.end(), choice.begin(), choice.end());
  }
  if (at_ != end_) fail_damaged(at_, "example {} has {} bytes more than its choices", index_, end_ - at_);
  end_ = std::ssize(file_);
  return example;
}

}  // namespace

bool is_llmc_task(std::string_view file) { return file.size() >= sizeof(int32_t) && header_field(file, 0) == kTaskMagic; }

std::vector<TaskExample> read_llmc_task(std::string_view file, const std::string& path) {
  if (std::ssize(file) < kLlmcHeaderBytes)
    fail_user("{}: truncated: its header has {} bytes, the file {}", path, kLlmcHeaderBytes, file.size());
  if (!is_llmc_task(file)) fail_user("{}: its magic number is {}, must be {}", path, header_field(file, 0), kTaskMagic);
  if (header_field(file, 1) != kTaskVersion)
    fail_user("{}: its version is {}, only {} is known", path, header_field(file, 1), kTaskVersion);
  const int64_t count = header_field(file, 2);
  if (count < 1) fail_user("{}: its header says {} examples", path, count);
  ExampleReader reader(file, path);
  std::vector<TaskExample> examples;
  for (int64_t i = 0; i < count; ++i) {
    if (reader.at_end()) fail_user("{}: truncated: its header says {} examples, it ends after {}", path, count, i);
    examples.push_back(reader.read(i));
  }
  if (!reader.at_end()) fail_user("{}: damaged: its header says {} examples, more bytes follow", path, count);
  return examples;
}

}  // namespace scatterlm
