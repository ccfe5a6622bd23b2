// TensorBoard event files: TFRecord framing around `Event` messages of tensorboard/compat/proto/event.proto.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace scatterlm {

/// One new file events.out.tfevents.* per start, which sorts after those of earlier starts.
class TensorBoardWriter {
 public:
  /// TensorBoard forgets what earlier starts wrote to this folder after `resume_step`.
  explicit TensorBoardWriter(const std::string& dir, int64_t resume_step = 0);

  /// `wall_time` in seconds since 1970. Kept in memory until flush().
  void scalar(std::string_view tag, double value, int64_t step, double wall_time);
  /// How often each value occurs, in buckets of a tenth of the range from zero to the largest value. Values are not negative.
  void histogram(std::string_view tag, const std::vector<double>& values, int64_t step, double wall_time);
  /// Throws Error "PATH: cannot write: REASON".
  void flush();

 private:
  void add_record(std::string_view event);

  std::string path_;
  std::ofstream file_;
};

/// CRC-32C (Castagnoli) of RFC 3720, B.4.
uint32_t crc32c(std::string_view bytes);

}  // namespace scatterlm
