#include "lib/report/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>

#include "lib/util/file_error.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78 : 0);
    table[i] = crc;
  }
  return table;
}

template <class T>
std::string little_endian(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// TFRecord stores checksums rotated and shifted, so that the checksum of a record with its checksum is no fixed number.
std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian<uint32_t>(((crc >> 15) | (crc << 17)) + 0xA282EAD8);
}

// Protocol buffers: a field is its number and wire type, then the value.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
  return out;
}

std::string key(uint64_t number, WireType type) { return varint(number << 3 | type); }
std::string int_field(uint64_t number, int64_t value) { return key(number, kVarint) + varint(static_cast<uint64_t>(value)); }
std::string float_field(uint64_t number, float value) { return key(number, kFixed32) + little_endian(value); }
std::string double_field(uint64_t number, double value) { return key(number, kFixed64) + little_endian(value); }
std::string bytes_field(uint64_t number, std::string_view value) {
  return (key(number, kBytes) + varint(value.size())).append(value);
}

/// Event {wall_time = 1, step = 2} and one of {file_version = 3, summary = 5, session_log = 7}.
std::string event(double wall_time, int64_t step, const std::string& what) {
  return double_field(1, wall_time) + int_field(2, step) + what;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// TensorBoard reads files in the order of their names, which begin with the second of their start: two starts within a second
/// must not get the same one.
int64_t next_second(const std::string& dir) {
  auto second = static_cast<int64_t>(now());
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename();
    uint32_t started = 0;  // stays 0 where the name has something else
    if (name.starts_with(kPrefix)) std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), started);
    second = std::max(second, int64_t{started} + 1);
  }
  return second;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = make_crc_table();
  uint32_t crc = ~0U;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::string& dir, int64_t resume_step) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) fail_file(dir, "create", error.value());
  char host[256] = "localhost";
  gethostname(host, sizeof(host) - 1);
  path_ = fmt::format("{}/{}{:010}.{}.{}", dir, kPrefix, next_second(dir), host, getpid());
  file_.open(path_, std::ios::binary);
  if (!file_) fail_file(path_, "write", errno);
  constexpr int64_t kStart = 1;  // SessionLog.SessionStatus
  add_record(event(now(), 0, bytes_field(3, "brain.Event:2")));
  add_record(event(now(), resume_step + 1, bytes_field(7, int_field(1, kStart))));
  flush();
}

void TensorBoardWriter::scalar(std::string_view tag, double value, int64_t step, double wall_time) {
  // Summary {value = 1: {tag = 1, simple_value = 2}}
  const std::string summary = bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)));
  add_record(event(wall_time, step, bytes_field(5, summary)));
}

void TensorBoardWriter::histogram(std::string_view tag, const std::vector<double>& values, int64_t step, double wall_time) {
  constexpr size_t kBuckets = 10;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (values.empty() || !(*most > 0)) return;
  std::vector<double> counts(kBuckets);
  double sum = 0, squares = 0;
  for (const double value : values) {
    const auto bucket = static_cast<size_t>(value / *most * kBuckets);
    counts[std::min(bucket, kBuckets - 1)]++;
    sum += value;
    squares += value * value;
  }
  std::string limits, sizes;
  for (size_t i = 0; i < kBuckets; ++i) {
    limits += little_endian(*most * static_cast<double>(i + 1) / kBuckets);
    sizes += little_endian(counts[i]);
  }
  // Summary {value = 1: {tag = 1, histo = 5: {min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket =
  // 7}}}
  const std::string histogram = double_field(1, *least) + double_field(2, *most) +
                                double_field(3, static_cast<double>(values.size())) + double_field(4, sum) +
                                double_field(5, squares) + bytes_field(6, limits) + bytes_field(7, sizes);
  add_record(event(wall_time, step, bytes_field(5, bytes_field(1, bytes_field(1, tag) + bytes_field(5, histogram)))));
}

void TensorBoardWriter::add_record(std::string_view event) {
  const std::string size = little_endian<uint64_t>(event.size());
  file_ << size << masked_crc(size) << event << masked_crc(event);
}

void TensorBoardWriter::flush() {
  if (!file_.flush()) fail_file(path_, "write", errno);
}

}  // namespace scatterlm
