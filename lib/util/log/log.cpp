#include "lib/util/log/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "lib/util/escape.h"

namespace scatterlm {
namespace {

spdlog::logger& logger() {
  static auto instance = [] {
    auto made = spdlog::stderr_color_mt("scatterlm");
    made->set_pattern("%^scatterlm: %l:%$ %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void log_as_rank(int64_t rank) {
  logger().set_pattern(fmt::format("%^scatterlm: %l:%$ rank {}: %v", rank));
  if (rank != 0) logger().set_level(spdlog::level::err);
}

void log_info(std::string_view text) { logger().info("{}", escape_control(text)); }
void log_warning(std::string_view text) { logger().warn("{}", escape_control(text)); }
void log_error(std::string_view text) { logger().error("{}", escape_control(text)); }

}  // namespace scatterlm
