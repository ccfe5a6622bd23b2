// Multiple-choice tasks, as tokens: a model answers right if it finds the right continuation of a context the most likely one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace scatterlm {

/// A context and one of its choices, as the model reads them.
struct TaskChoice {
  std::vector<uint32_t> tokens;
  int64_t context = 0;  ///< the first so many tokens are the context, at least one; those behind it are the choice
  double length = 0;    ///< of the choice, by which acc_norm divides
};

struct TaskExample {
  std::vector<TaskChoice> choices;
  int64_t answer = 0;  ///< number of the right one
};

struct Task {
  std::string name;  ///< of the file, without folder and extension
  std::string path;
  std::vector<TaskExample> examples;
  const char* length_unit = "";  ///< of TaskChoice::length: "bytes" or "tokens"
  std::string xxh3;              ///< of the file
};

/// Of one example. The context is kept once per choice: this bounds the memory for what a small file can ask for.
inline constexpr int64_t kMostChoices = 64;

}  // namespace scatterlm
