// Run folders with small checkpoints, whole and damaged.
#pragma once
#include <ATen/ATen.h>
#include <unistd.h>

#include <barrier>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lib/io/checkpoint.h"
#include "lib/util/error.h"
#include "lib/util/hash.h"

#include "tests/catch.h"

namespace scatterlm {

/// An empty run folder, removed at the end.
struct Run {
  std::string dir = std::filesystem::temp_directory_path() / fmt::format("scatterlm_checkpoint_{}", getpid());
  Run() {
    std::filesystem::remove_all(dir);
    std::filesystem::create_directories(dir);
  }
  ~Run() { std::filesystem::remove_all(dir); }
  std::string path(int64_t step) const { return checkpoint_path(dir, step); }
};

inline const at::Tensor kEmbed = at::arange(12.).reshape({3, 4}).to(at::kFloat);
inline const at::Tensor kScale = at::arange(5).to(at::kBFloat16);

inline TensorSlice slice(const std::string& name, const at::Tensor& tensor, int64_t begin, int64_t end) {
  return {name, tensor.sizes().vec(), begin, end, tensor.flatten().slice(0, begin, end)};
}
inline TensorSlice whole(const std::string& name, const at::Tensor& tensor) { return slice(name, tensor, 0, tensor.numel()); }

inline CheckpointContents contents(int64_t step) {
  return {step, "model:\n  hidden_size: 4\n", {{"step", step}, {"tokens", step * 4096}}};
}

inline std::vector<TensorSlice> tensors() { return {whole("embed.weight", kEmbed), whole("norm.weight", kScale)}; }

inline std::string save(const Run& run, int64_t step) { return save_checkpoint(run.dir, contents(step), tensors()); }

/// Every rank in a thread of its own; returns each rank's error, empty for none.
inline std::vector<std::string> save_ranks(const Run& run, int64_t step, const std::vector<std::vector<TensorSlice>>& slices) {
  const auto world = static_cast<int64_t>(slices.size());
  std::barrier<> barrier(world);
  std::vector<std::string> errors(slices.size());
  std::vector<std::thread> ranks;
  for (int64_t rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        save_checkpoint(run.dir, contents(step), slices[rank], {rank, world, [&] { barrier.arrive_and_wait(); }});
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  return errors;
}

/// Replaces a file and the hashes that guard it, as somebody with intent would.
inline void forge_manifest(const std::string& folder, const std::string& text) {
  std::ofstream(folder + "/manifest.json") << text;
  std::ofstream(folder + "/manifest.xxh3") << hash_hex(text) << "\n";
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != text.npos);
  return text.replace(text.find(from), from.size(), to);
}

inline size_t num_entries(const std::string& dir) { return std::distance(std::filesystem::directory_iterator(dir), {}); }

inline void flip_bit(const std::string& path, std::streamoff at, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.get();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ (1 << bit)));
}

}  // namespace scatterlm
