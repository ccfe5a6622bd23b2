// manifest.json of a checkpoint: its files with sizes and hashes, and which file holds which part of each logical tensor.
//   {"format": 1, "step": 1000, "world": 2,
//    "files": [{"name": "rank_00000.safetensors", "bytes": 4096, "xxh3": "0123456789abcdef"}, ...],
//    "tensors": {"embed.weight": {"dtype": "BF16", "shape": [257, 128], "slices": [{"file": "...", "begin": 0, "end":
//    32896}]}}}
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace scatterlm {

/// Whether a checkpoint may hold a file of this name: letters, digits, '.', '_' and '-', not beginning with a dot.
bool is_plain_file_name(const std::string& name);

struct Manifest {
  struct File {
    std::string name;
    uint64_t bytes = 0;
    std::string xxh3;
  };
  struct Slice {
    std::string file;
    int64_t begin = 0, end = 0;  ///< elements of the logical tensor, row-major
  };
  struct Tensor {
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    std::vector<Slice> slices;  ///< ascending
    int64_t numel() const;
  };

  int64_t step = 0, world = 1;
  std::vector<File> files;
  std::map<std::string, Tensor> tensors;
};

/// Name under which a slice stands in its file: a whole tensor keeps its name and shape, so that other programs can read it; a
/// part is one-dimensional and called NAME@BEGIN.
std::string slice_key(const std::string& name, const Manifest::Tensor& tensor, const Manifest::Slice& slice);

std::string dump_manifest(const Manifest& manifest);

/// Throws Error "WHERE: ..." for anything that dump_manifest would not write, file names with folders among it.
Manifest parse_manifest(std::string_view text, const std::string& where);

/// Adds the files and slices of another rank. Throws Error "WHERE: ..." if both disagree on step, world, dtype or shape.
void merge_manifest(Manifest& manifest, const Manifest& part, const std::string& where);

/// Throws Error "WHERE: ..." unless the slices of every tensor cover each element once and lie in listed files.
void check_slices(const Manifest& manifest, const std::string& where);

/// Throws Error "FOLDER/NAME: damaged: ..." unless the file has the size and hash that the manifest says.
void check_file(const std::string& folder, const Manifest::File& file);

/// The complete manifest of a checkpoint folder, checked against its own hash in manifest.xxh3.
Manifest read_manifest(const std::string& folder);
void write_manifest(const std::string& folder, const Manifest& manifest);

}  // namespace scatterlm
