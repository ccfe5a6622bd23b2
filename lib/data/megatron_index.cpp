#include "lib/data/megatron_index.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>

namespace scatterlm {
namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr int64_t kHeaderBytes = 34;  // magic, u64 version, u8 dtype, u64 sequences, u64 documents + 1

}  // namespace

bool MegatronIndex::is_index(const std::string& path) {
  std::error_code unreadable;
  if (!std::filesystem::is_regular_file(path, unreadable)) return false;  // reading a named pipe may hang
  char start[kMagic.size()];
  std::ifstream file(path, std::ios::binary);
  return file.read(start, sizeof(start)) && std::string_view(start, sizeof(start)) == kMagic;
}

MegatronIndex::MegatronIndex(const std::string& path) : file_(path) {
  const auto size = static_cast<int64_t>(file_.size());
  const std::byte* const start = file_.data();
  if (size < static_cast<int64_t>(kMagic.size()) || std::memcmp(start, kMagic.data(), kMagic.size()) != 0)
    fail_user("{}: not a Megatron index (it does not begin with MMIDIDX)", path);
  if (size < kHeaderBytes) fail_user("{}: truncated Megatron index: {} bytes, the header has {}", path, size, kHeaderBytes);

  const auto version = load_element<uint64_t>(start + 9, 0);
  if (version != 1) fail_user("{}: Megatron index version {}, only 1 is known", path, version);
  const int dtype = load_element<uint8_t>(start + 17, 0);
  if (dtype == 6 || dtype == 7) fail_user("{}: Megatron index of floating-point data, not of tokens", path);
  if (dtype < 1 || dtype > 8) fail_user("{}: Megatron index with unknown dtype {}", path, dtype);
  type_ = static_cast<TokenType>(dtype);

  const auto sequences = load_element<uint64_t>(start + 18, 0);
  const auto boundaries = load_element<uint64_t>(start + 26, 0);
  // The bounds keep the products below from overflowing.
  const auto room = static_cast<uint64_t>(size);
  const bool plausible = sequences < room && boundaries < room;
  const uint64_t expected = plausible ? kHeaderBytes + 12 * sequences + 8 * boundaries : 0;
  if (!plausible || (room != expected && room != expected + sequences))
    fail_user("{}: Megatron index of {} bytes does not fit its {} sequences and {} document boundaries: truncated or damaged",
              path, size, sequences, boundaries);
  if (sequences == 0) fail_user("{}: Megatron index without sequences", path);
  if (boundaries == 0) fail_user("{}: Megatron index without document boundaries", path);

  num_sequences_ = static_cast<int64_t>(sequences);
  num_documents_ = static_cast<int64_t>(boundaries) - 1;
  lengths_ = start + kHeaderBytes;
  pointers_ = lengths_ + 4 * num_sequences_;
  documents_ = pointers_ + 8 * num_sequences_;
  check_sequences(path);
  check_documents(path);
}

void MegatronIndex::check_sequences(const std::string& path) {
  const int64_t width = width_of(type_);
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const auto length = load_element<int32_t>(lengths_, i);
    const auto pointer = load_element<int64_t>(pointers_, i);
    if (length < 0) fail_user("{}: sequence {} of the Megatron index has length {}", path, i, length);
    if (pointer != num_tokens_ * width)
      fail_user("{}: sequence {} of the Megatron index begins at byte {}, the lengths before it add up to {}", path, i, pointer,
                num_tokens_ * width);
    num_tokens_ += length;
  }
  if (num_tokens_ == 0) fail_user("{}: Megatron index without tokens", path);
}

void MegatronIndex::check_documents(const std::string& path) const {
  int64_t previous = 0;
  for (int64_t i = 0; i <= num_documents_; ++i) {
    const auto sequence = load_element<int64_t>(documents_, i);
    if (i == 0 ? sequence != 0 : sequence < previous)
      fail_user("{}: document boundary {} of the Megatron index is {}, it must be {} {}", path, i, sequence,
                i == 0 ? "exactly" : "at least", previous);
    previous = sequence;
  }
  if (previous != num_sequences_)
    fail_user("{}: the last document boundary of the Megatron index is {}, it must be {}", path, previous, num_sequences_);
}

int64_t MegatronIndex::document_begin(int64_t document) const {
  const auto sequence = load_element<int64_t>(documents_, document);
  if (sequence == num_sequences_) return num_tokens_;
  return load_element<int64_t>(pointers_, sequence) / width_of(type_);
}

}  // namespace scatterlm
