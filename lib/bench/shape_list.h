// What --shapes takes: sizes in the order of their letters, names of shapes and of sets of shapes, with ';' between.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace scatterlm::bench {

/// Letters with values: {{"T", 24576}, {"D", 1536}, ...}.
using Sizes = std::vector<std::pair<std::string, int64_t>>;

std::string text_of(const Sizes& sizes);  ///< "24576,1536,..."

std::vector<std::string> split(std::string_view text, char separator);

/// The numbers of `text`, one for each of the letters ("T,D,F,E,K"), from 1 to 2^31 - 1. Throws Error about --shapes; `names`:
/// what else would have been right.
std::vector<int64_t> parse_sizes(const std::string& text, const std::string& letters, const std::vector<std::string>& names);

template <class Shape>
struct ShapeSet {
  std::string name;
  std::vector<Shape> shapes;  ///< those with a name of their own are found by it too
};

/// Shape has a name and sizes(). `parse`: one shape in numbers; it gets the names that would have been right as well.
template <class Shape>
std::vector<Shape> parse_list(std::string_view text, const std::vector<ShapeSet<Shape>>& sets,
                              Shape (*parse)(const std::string& text, const std::vector<std::string>& names)) {
  std::vector<std::string> names;
  for (const auto& set : sets) names.push_back(set.name);
  for (const auto& set : sets)
    for (const auto& shape : set.shapes)
      if (!shape.name.empty()) names.push_back(shape.name);
  const auto find = [&](const std::string& part) -> std::vector<Shape> {
    for (const auto& set : sets) {
      if (set.name == part) return set.shapes;
      for (const auto& shape : set.shapes)
        if (!shape.name.empty() && (shape.name == part || text_of(shape.sizes()) == part)) return {shape};
    }
    return {parse(part, names)};
  };
  std::vector<Shape> shapes;
  for (const auto& part : split(text, ';'))
    for (const auto& shape : find(part)) shapes.push_back(shape);
  return shapes;
}

}  // namespace scatterlm::bench
