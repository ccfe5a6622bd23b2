#include "lib/data/token_file.h"

#include <ATen/Parallel.h>
#include <glob.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>
#include <type_traits>

#include "lib/data/npy_header.h"
#include "lib/util/hash.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

/// What else llm.c writes, by its first number.
const char* other_llmc_file(int32_t magic) {
  switch (magic) {
    case 20240522: return "evaluation examples";
    case 20240326: return "a model";
    case 20240527: return "a training state";
    case 20240328: return "a tokenizer";
    default: return nullptr;
  }
}

/// PREFIX if `path` names a Megatron pair as PREFIX, PREFIX.bin or PREFIX.idx.
std::optional<std::string> megatron_prefix(const std::string& path) {
  const fs::path name(path);
  const bool has_suffix = name.extension() == ".bin" || name.extension() == ".idx";
  const std::string prefix = has_suffix ? path.substr(0, path.size() - 4) : path;
  // An .idx that is asked for by name is Megatron's or an error.
  if (name.extension() == ".idx" || MegatronIndex::is_index(prefix + ".idx")) return prefix;
  return std::nullopt;
}

/// Whether the beginning has no control characters but those of text. Tokens of 16 or 32 bits have zero bytes.
bool is_text(const MappedFile& file) {
  constexpr size_t kLooked = 4096;
  constexpr std::string_view kSpaces = "\t\n\v\f\r";
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), std::min(file.size(), kLooked));
  return std::ranges::all_of(
      bytes, [&](char c) { return (static_cast<uint8_t>(c) >= 0x20 && c != 0x7f) || kSpaces.find(c) != kSpaces.npos; });
}

/// First position in [begin, end) whose token, read as unsigned, is not below limit.
template <class Unsigned>
std::optional<int64_t> find_at_least(const std::byte* tokens, int64_t begin, int64_t end, uint64_t limit) {
  constexpr int64_t kBlock = 1 << 14;  // the maximum of a block is a vector loop; only a bad block is searched
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t last = std::min(first + kBlock, end);
    Unsigned largest = 0;
    for (int64_t i = first; i < last; ++i) largest = std::max(largest, load_element<Unsigned>(tokens, i));
    if (largest < limit) continue;
    for (int64_t i = first; i < last; ++i)
      if (load_element<Unsigned>(tokens, i) >= limit) return i;
  }
  return std::nullopt;
}

}  // namespace

const char* format_name(TokenFormat format) {
  constexpr const char* kNames[] = {"llm.c", "Megatron", "npy", "raw"};
  return kNames[static_cast<int>(format)];
}

std::string type_name(TokenType type) {
  return with_token_type(
      type, [](auto token) { return fmt::format("{}int{}", std::is_signed_v<decltype(token)> ? "" : "u", 8 * sizeof(token)); });
}

TokenFile::TokenFile(const std::string& path, TokenWidth raw_dtype) : path_(path) { detect(path, raw_dtype); }

void TokenFile::detect(const std::string& path, TokenWidth raw_dtype) {
  if (const auto prefix = megatron_prefix(path)) return open_megatron(*prefix);
  std::error_code unreadable;  // opening it says why
  if (fs::is_directory(path, unreadable)) fail_user("{}: is a folder; name its token files, for example {}/*.bin", path, path);
  file_ = MappedFile(path);
  if (file_.size() == 0) fail_user("{}: empty file", path_);

  const auto magic = file_.size() >= sizeof(int32_t) ? load_element<int32_t>(file_.data(), 0) : 0;
  for (const LlmcFormat& format : kLlmcFormats)
    if (magic == format.magic) return open_llmc(format);
  if (const char* other = other_llmc_file(magic))
    fail_user("{}: holds {} of llm.c (magic number {}), not tokens", path_, other, magic);
  if (NpyHeader::is_npy(file_)) return open_npy();
  open_raw(raw_dtype);
}

void TokenFile::open_megatron(const std::string& prefix) {
  index_.emplace(prefix + ".idx");
  path_ = prefix + ".bin";
  file_ = MappedFile(path_);
  format_ = TokenFormat::kMegatron;
  type_ = index_->type();
  num_tokens_ = index_->num_tokens();
  tokens_ = file_.data();
  const int64_t needed = num_tokens_ * width_of(type_);
  if (static_cast<int64_t>(file_.size()) < needed)
    fail_user("{}: truncated: {} bytes, {}.idx needs {}", path_, file_.size(), prefix, needed);
}

void TokenFile::open_llmc(const LlmcFormat& format) {
  format_ = TokenFormat::kLlmc;
  type_ = format.type;
  if (file_.size() < kLlmcHeaderBytes)
    fail_user("{}: truncated: {} bytes, the header of an llm.c file has {}", path_, file_.size(), kLlmcHeaderBytes);
  const auto version = load_element<int32_t>(file_.data(), 1);
  if (version != format.version)
    fail_user("{}: llm.c version {}, files with magic number {} have {}", path_, version, format.magic, format.version);
  set_tokens(kLlmcHeaderBytes, load_element<int32_t>(file_.data(), 2));
  const std::string_view header(reinterpret_cast<const char*>(file_.data()), kLlmcHeaderBytes);
  if (header.substr(kChecksumMarkAt).starts_with(kChecksumMark))
    checksum_ = header.substr(kChecksumMarkAt + kChecksumMark.size(), kChecksumDigits);
  if (header.substr(kTokenizerMarkAt).starts_with(kTokenizerMark))
    tokenizer_ = header.substr(kTokenizerMarkAt + kTokenizerMark.size(), kChecksumDigits);
}

void TokenFile::open_npy() {
  const NpyHeader header(file_, path_);
  format_ = TokenFormat::kNpy;
  type_ = header.type;
  set_tokens(header.num_bytes, header.num_tokens);
}

void TokenFile::open_raw(TokenWidth raw_dtype) {
  if (raw_dtype == TokenWidth::kAuto && is_text(file_))
    fail_user("{}: is text, not tokens; make token files of it: scatterlm data prepare {} --out DIR", path_, path_);
  if (raw_dtype == TokenWidth::kAuto)
    fail_user(
        "{}: unknown format; if it is bare tokens without a header, set data.raw_dtype (data inspect: --raw-dtype) to uint16 "
        "or uint32",
        path_);
  type_ = raw_dtype == TokenWidth::kUint16 ? TokenType::kU16 : TokenType::kU32;
  if (file_.size() % width_of(type_) != 0)
    fail_user("{}: {} bytes are not a whole number of {} tokens (data.raw_dtype)", path_, file_.size(), enum_name(raw_dtype));
  tokens_ = file_.data();
  num_tokens_ = static_cast<int64_t>(file_.size()) / width_of(type_);
}

void TokenFile::set_tokens(int64_t header_bytes, int64_t num_tokens) {
  if (num_tokens <= 0) fail_user("{}: its header says {} tokens", path_, num_tokens);
  // Divided, not multiplied: the count in a damaged header may overflow.
  const int64_t rest = static_cast<int64_t>(file_.size()) - header_bytes;
  if (rest % width_of(type_) != 0 || rest / width_of(type_) != num_tokens)
    fail_user("{}: truncated or damaged: its header says {} tokens of {} bytes, {} bytes follow", path_, num_tokens,
              width_of(type_), rest);
  tokens_ = file_.data() + header_bytes;
  num_tokens_ = num_tokens;
}

void TokenFile::read(int64_t begin, int64_t count, int64_t vocab_size, int64_t* out) const {
  if (const auto position = find_outside(begin, begin + count, vocab_size)) fail_outside(*position, vocab_size);
  with_token_type(type_, [&](auto token) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int64_t>(load_element<decltype(token)>(tokens_, begin + i));
  });
}

void TokenFile::check(int64_t count, int64_t vocab_size) const {
  std::atomic<int64_t> first{count};  // in the file, whatever thread finds it
  at::parallel_for(0, count, /*grain_size=*/1 << 22, [&](int64_t begin, int64_t end) {
    const auto position = find_outside(begin, end, vocab_size);
    if (!position) return;
    int64_t known = first;
    while (*position < known && !first.compare_exchange_weak(known, *position)) {
    }
  });
  if (first < count) fail_outside(first, vocab_size);
}

void TokenFile::verify() const {
  if (checksum_.empty()) return;
  const auto bytes = static_cast<size_t>(num_tokens_ * width_of(type_));
  if (hash_hex({reinterpret_cast<const char*>(tokens_), bytes}) != checksum_)
    fail_user("{}: damaged: its tokens do not have the checksum that its header holds; copy or prepare it again", path_);
}

std::string TokenFile::sampled_hash() const {
  constexpr int64_t kBlocks = 16, kBlockBytes = 4096;
  const int64_t bytes = num_tokens_ * width_of(type_);
  Hash hash;
  if (bytes <= kBlocks * kBlockBytes) {
    hash.add(tokens_, static_cast<size_t>(bytes));
  } else {
    for (int64_t i = 0; i < kBlocks; ++i) hash.add(tokens_ + (bytes - kBlockBytes) * i / (kBlocks - 1), kBlockBytes);
  }
  if (index_) hash.add(index_->file().data(), index_->file().size());
  return hash.hex();
}

bool TokenFile::fits(int64_t vocab_size) const {
  return with_token_type(type_, [&](auto token) {
    using T = decltype(token);
    if constexpr (std::is_signed_v<T>) return false;
    return static_cast<uint64_t>(std::numeric_limits<T>::max()) < static_cast<uint64_t>(vocab_size);
  });
}

std::optional<int64_t> TokenFile::find_outside(int64_t begin, int64_t end, int64_t vocab_size) const {
  if (fits(vocab_size)) return std::nullopt;
  return with_token_type(type_, [&](auto token) {
    using T = decltype(token);
    // Read as unsigned, a negative token lies above the largest positive one.
    const uint64_t representable = static_cast<uint64_t>(std::numeric_limits<T>::max()) + 1;
    return find_at_least<std::make_unsigned_t<T>>(tokens_, begin, end,
                                                  std::min(static_cast<uint64_t>(vocab_size), representable));
  });
}

void TokenFile::fail_outside(int64_t position, int64_t vocab_size) const {
  const int64_t token =
      with_token_type(type_, [&](auto t) { return static_cast<int64_t>(load_element<decltype(t)>(tokens_, position)); });
  fail_user("{}: token {} at position {} is not in [0, {}): set model.vocab_size to that of the file's tokenizer", path_, token,
            position, vocab_size);
}

std::vector<std::string> expand_shards(const std::string& pattern) {
  std::error_code unreadable;
  if (pattern.find_first_of("*?[") == std::string::npos || fs::exists(pattern, unreadable)) return {pattern};
  glob_t matches;
  const int result = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches);
  std::set<std::string> paths;
  if (result == 0) paths.insert(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  globfree(&matches);
  if (paths.empty()) fail_user("{}: no file matches", pattern);
  // `corpus_*` matches both files of a Megatron pair.
  std::erase_if(paths, [&](const std::string& path) {
    return path.ends_with(".idx") && paths.contains(path.substr(0, path.size() - 4) + ".bin");
  });
  return {paths.begin(), paths.end()};
}

}  // namespace scatterlm
