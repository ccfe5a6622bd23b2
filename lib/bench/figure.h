// One measurement compared with what the machine could do: for evidence files and for people.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lib/bench/timer.h"
#include "lib/bench/work.h"

namespace scatterlm::bench {

struct Figure {
  std::string name;
  Spread ms;
  Work work;                       ///< speed counts FLOPs if there are any, else bytes
  std::optional<double> bound_ms;  ///< the roofline's; nothing on a CPU
};

/// ms, p10_ms, p90_ms, tflops or gbps, ceiling_percent and roofline_percent (null without ceilings).
nlohmann::ordered_json to_json(const Figure& figure, const std::optional<Ceilings>& ceilings);

/// A line each under a heading: name, ms, p10, p90, speed, percent of the ceiling and of the roofline.
std::string format_figures(const std::vector<Figure>& figures, const std::optional<Ceilings>& ceilings);

/// The first column to the left, the others to the right, two spaces between.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace scatterlm::bench
