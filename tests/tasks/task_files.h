// Small multiple-choice tasks in both formats.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/data/files.h"

namespace scatterlm {

struct Question {
  std::vector<uint16_t> context;
  std::vector<std::vector<uint16_t>> choices;
  uint16_t label;
};

/// The bytes of llm.c's evaluation format.
inline std::string llmc_task(const std::vector<Question>& questions) {
  std::string file = llmc_header(20240522, 1, static_cast<int32_t>(questions.size()));
  uint16_t index = 0;
  for (const auto& [context, choices, label] : questions) {
    std::vector<uint16_t> stream = {65535, 0, index++, label, static_cast<uint16_t>(choices.size())};
    const auto add = [&](const std::vector<uint16_t>& tokens) {
      stream.push_back(static_cast<uint16_t>(tokens.size()));
      stream.insert(stream.end(), tokens.begin(), tokens.end());
    };
    add(context);
    for (const auto& choice : choices) add(choice);
    stream[1] = static_cast<uint16_t>(2 * stream.size());
    file += packed(stream);
  }
  return file;
}

inline const std::vector<Question> kQuestions = {{{10, 20, 30}, {{1, 2}, {3}}, 1}, {{40}, {{50256}, {5, 6, 7}, {8}}, 2}};

}  // namespace scatterlm
