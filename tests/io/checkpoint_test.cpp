#include "lib/io/checkpoint.h"

#include <ATen/ATen.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lib/io/manifest.h"
#include "lib/io/safetensors.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "tests/io/checkpoint_run.h"
#include "tests/mutate.h"

#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

TEST_CASE("checkpoint: what was saved comes back") {
  const Run run;
  const std::string path = save(run, 1000);
  REQUIRE(path == run.dir + "/step_00001000");
  const CheckpointReader reader(path);
  REQUIRE(reader.path() == path);
  REQUIRE(reader.contents().step == 1000);
  REQUIRE(reader.contents().config_yaml == contents(1000).config_yaml);
  REQUIRE(reader.contents().state == contents(1000).state);
  REQUIRE(reader.tensors().size() == 2);
  REQUIRE(reader.tensors().at("norm.weight").dtype == at::kBFloat16);
  REQUIRE(reader.tensors().at("embed.weight").shape == std::vector<int64_t>{3, 4});
  REQUIRE(at::equal(reader.read("embed.weight"), kEmbed));
  REQUIRE(at::equal(reader.read("norm.weight"), kScale));
  REQUIRE(at::equal(reader.read("embed.weight", 5, 9), kEmbed.flatten().slice(0, 5, 9)));
  REQUIRE(reader.read("embed.weight", 7, 7).numel() == 0);
  REQUIRE_THROWS_WITH(reader.read("x"), path + ": no tensor is named \"x\"");
  REQUIRE_THROWS_WITH(reader.read("norm.weight", 3, 6), path + ": tensor \"norm.weight\" has 5 elements, asked for 3 to 6");
  auto same = at::zeros({4}), wide = at::zeros({3}), columns = at::zeros({2, 2});
  reader.read_into("embed.weight", 5, same);
  REQUIRE(at::equal(same, kEmbed.flatten().slice(0, 5, 9)));
  reader.read_into("norm.weight", 2, wide);  // of another dtype
  REQUIRE(at::equal(wide, kScale.slice(0, 2, 5).to(at::kFloat)));
  reader.read_into("embed.weight", 7, columns.select(1, 0));  // not one after the other in memory
  REQUIRE(at::equal(columns.select(1, 0), kEmbed.flatten().slice(0, 7, 9)));
  REQUIRE(columns.select(1, 1).count_nonzero().item<int>() == 0);
  REQUIRE_THROWS_WITH(reader.read_into("norm.weight", 3, wide), ContainsSubstring("has 5 elements, asked for 3 to 6"));
  REQUIRE(!verify_checkpoint(path));
  // A whole tensor is there under its name for other programs.
  REQUIRE(at::equal(SafetensorsFile(path + "/rank_00000.safetensors").tensor("embed.weight"), kEmbed));
  REQUIRE(num_entries(path) == 5);
  REQUIRE(num_entries(run.dir) == 1);
}

TEST_CASE("checkpoint: three ranks write, one reads") {
  const Run run;
  const auto empty = at::empty({0, 7});
  const auto errors = save_ranks(run, 7,
                                 {{slice("embed.weight", kEmbed, 0, 5), whole("norm.weight", kScale), whole("empty", empty)},
                                  {slice("embed.weight", kEmbed, 5, 5)},
                                  {slice("embed.weight", kEmbed, 10, 12), slice("embed.weight", kEmbed, 5, 10)}});
  for (const auto& error : errors) REQUIRE(error == "");
  const CheckpointReader reader(run.path(7));
  REQUIRE(at::equal(reader.read("embed.weight"), kEmbed));
  REQUIRE(at::equal(reader.read("norm.weight"), kScale));
  REQUIRE(reader.read("empty").sizes() == at::IntArrayRef{0, 7});
  for (int64_t begin = 0; begin <= 12; ++begin) {
    for (int64_t end = begin; end <= 12; ++end) {
      REQUIRE(at::equal(reader.read("embed.weight", begin, end), kEmbed.flatten().slice(0, begin, end)));
    }
  }
  REQUIRE(num_entries(run.path(7)) == 7);  // the notes to rank 0 are gone
  REQUIRE(SafetensorsFile(run.path(7) + "/rank_00002.safetensors").entries().count("embed.weight@10") == 1);
}

TEST_CASE("checkpoint: every flipped bit is found") {
  const Run run;
  const std::string path = save(run, 3);
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string file = entry.path();
    INFO(file);
    const auto bytes = static_cast<int64_t>(entry.file_size());
    for (int64_t at = 0; at < bytes; ++at) {
      const int bit = static_cast<int>(at % 8);
      flip_bit(file, at, bit);
      REQUIRE(verify_checkpoint(path));
      flip_bit(file, at, bit);
    }
  }
  REQUIRE(!verify_checkpoint(path));
}

TEST_CASE("checkpoint: damage is named with its file") {
  const Run run;
  const std::string path = save(run, 3);
  const std::string rank = path + "/rank_00000.safetensors";
  const std::string hint = "; use another checkpoint or restore the file";
  SECTION("a changed byte") {
    const std::string before = hash_hex(read_file(rank));
    flip_bit(rank, 100, 0);
    REQUIRE(verify_checkpoint(path).value() ==
            rank + ": damaged: hash " + hash_hex(read_file(rank)) + ", the manifest says " + before + hint);
    REQUIRE_THROWS_WITH(CheckpointReader(path), ContainsSubstring(rank + ": damaged"));
  }
  SECTION("a cut off file") {
    const auto size = fs::file_size(rank);
    fs::resize_file(rank, 100);
    REQUIRE(verify_checkpoint(path).value() == fmt::format("{}: damaged: 100 bytes, the manifest says {}{}", rank, size, hint));
  }
  SECTION("a missing file") {
    fs::remove(rank);
    REQUIRE(verify_checkpoint(path).value() == rank + ": cannot open: No such file or directory");
  }
  SECTION("a changed manifest") {
    flip_bit(path + "/manifest.json", 20, 1);
    REQUIRE(
        verify_checkpoint(path).value() ==
        path +
            "/manifest.json: damaged: its hash is not the one in manifest.xxh3; use another checkpoint or restore the folder");
  }
}

TEST_CASE("checkpoint: a manifest that asks for nonsense is refused") {
  const Run run;
  const auto errors = save_ranks(
      run, 3, {{slice("embed.weight", kEmbed, 0, 5), whole("norm.weight", kScale)}, {slice("embed.weight", kEmbed, 5, 12)}});
  for (const auto& error : errors) REQUIRE(error == "");
  const std::string path = run.path(3), where = path + "/manifest.json";
  const std::string text = read_file(where);
  struct Case {
    std::string from, to, message;
  };
  const Case cases[] = {
      {"\"format\": 1", "\"format\": 2", "format 2 is not known, this program reads format 1"},
      {"\"step\": 3", "\"step\": -3", "'step' is not a count"},
      {"\"step\": 3", "\"step\": 3.0", "'step' is not a count"},
      {"\"step\": 3,", "", "'step' is missing"},
      {"\"step\": 3", "\"step\": 3, \"step\": 4", "key \"step\" is given twice"},
      {"\"name\": \"rank_00000", "\"name\": \"../rank_00000",
       "\"../rank_00000.safetensors\" is not a file name that a checkpoint has"},
      {"\"name\": \"rank_00000", "\"name\": \"a/rank_00000",
       "\"a/rank_00000.safetensors\" is not a file name that a checkpoint has"},
      {"\"name\": \"rank_00000", "\"name\": \"rank_00001", "file rank_00001.safetensors is listed twice"},
      {"\"name\": \"rank_00000", "\"name\": \"rank_00007",
       "tensor \"embed.weight\": file \"rank_00000.safetensors\" is not listed"},
      {"\"name\": \"state.json", "\"name\": \"other.json", ""},
      {"\"embed.weight\": {", "\"embed\\u001b[2J\": {", "\"embed\\u001b[2J\" is not a tensor name that a checkpoint has"},
      {"\"xxh3\": \"", "\"xxh3\": \"\\u001b[31m", ""},
      {"\"F32\"", "\"F31\"", "tensor \"embed.weight\": dtype \"F31\" is not supported"},
      {"\"begin\": 5", "\"begin\": 4", "tensor \"embed.weight\": slices overlap at element 4"},
      {"\"begin\": 5", "\"begin\": 6", "tensor \"embed.weight\": elements 5 to 5 are missing"},
      {"\"end\": 12", "\"end\": 11", "tensor \"embed.weight\": elements 11 to 11 are missing"},
      {"\"end\": 12", "\"end\": 13", "tensor \"embed.weight\": slice ends at 13 of 12 elements"},
      {"\"tensors\": {", "\"tensors\": [], \"x\": {", "'tensors' is not an object"},
  };
  for (const auto& c : cases) {
    INFO(c.to);
    forge_manifest(path, replaced(text, c.from, c.to));
    const auto problem = verify_checkpoint(path);
    REQUIRE(problem);
    REQUIRE(problem->find('\x1b') == problem->npos);
    if (!c.message.empty()) REQUIRE(*problem == where + ": " + c.message);
  }
  forge_manifest(path, replaced(text, "\"shape\": [\n    3,\n    4", "\"shape\": [\n    4,\n    3"));
  REQUIRE(!verify_checkpoint(path));  // parts have no shape of their own
  forge_manifest(path, replaced(text, "\"F32\"", "\"I32\""));
  REQUIRE(verify_checkpoint(path).value() ==
          path + "/rank_00000.safetensors: does not hold tensor \"embed.weight@0\" as the manifest says");
}

TEST_CASE("checkpoint: saving the same step again replaces it") {
  const Run run;
  save(run, 5);
  save_checkpoint(run.dir, contents(5), {whole("other", kScale)});
  const CheckpointReader reader(run.path(5));
  REQUIRE(reader.tensors().size() == 1);
  REQUIRE(at::equal(reader.read("other"), kScale));
  REQUIRE(num_entries(run.dir) == 1);
}

TEST_CASE("checkpoint: a failed save leaves the others as they were") {
  const Run run;
  save(run, 1);
  SECTION("a full disk") {
    rlimit old{};
    getrlimit(RLIMIT_FSIZE, &old);
    const rlimit tight{200, old.rlim_max};  // stands for it
    std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tight);
    const std::string unfinished = run.dir + "/.tmp_step_00000002/rank_00000.safetensors";
    REQUIRE_THROWS_WITH(save(run, 2), unfinished + ": cannot write: File too large");
    setrlimit(RLIMIT_FSIZE, &old);
  }
  SECTION("one of several ranks fails") {
    const TensorSlice wrong{"embed.weight", {3, 4}, 0, 12, kScale};
    const auto errors = save_ranks(run, 2, {tensors(), {wrong}, {}});
    REQUIRE(errors[0] == run.path(2) + ": not saved: rank 1 has not written its part");
    REQUIRE(errors[1] == "[save_checkpoint] \"embed.weight\": elements 0 to 12 of shape [3, 4], with data of shape [5]");
  }
  SECTION("ranks that write the same elements") {
    const auto errors = save_ranks(run, 2, {tensors(), {whole("norm.weight", kScale)}});
    REQUIRE(errors[0] == run.path(2) + ": tensor \"norm.weight\": slices overlap at element 0");
  }
  SECTION("elements that nobody writes") {
    REQUIRE_THROWS_WITH(save_checkpoint(run.dir, contents(2), {slice("norm.weight", kScale, 1, 5)}),
                        run.path(2) + ": tensor \"norm.weight\": elements 0 to 0 are missing");
  }
  SECTION("ranks that disagree on a shape") {
    const TensorSlice other{"norm.weight", {7}, 5, 7, at::ones({2}, at::kBFloat16)};
    const auto errors = save_ranks(run, 2, {tensors(), {other}});
    REQUIRE_THAT(errors[0], ContainsSubstring("tensor \"norm.weight\" has slices of different dtype or shape"));
  }
  REQUIRE(num_entries(run.dir) == 1);
  REQUIRE(!verify_checkpoint(run.path(1)));
}

TEST_CASE("checkpoint: kill -9 at any moment leaves whole checkpoints") {
  const Run run;
  save(run, 0);
  int64_t step = 0;
  for (int round = 0; round < 200 && (round < 20 || step < 3); ++round) {  // more where the disk is slow
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (int64_t i = 2;; ++i) {
        save(run, step + i / 2);  // each step twice: the second replaces the first
        prune_checkpoints(run.dir, step + i / 2, 2, 0);
      }
    }
    usleep(7000 * (1 + round % 20));
    kill(child, SIGKILL);
    REQUIRE(waitpid(child, nullptr, 0) == child);
    const auto steps = list_checkpoints(run.dir);
    REQUIRE(!steps.empty());
    for (const int64_t saved : steps) REQUIRE(!verify_checkpoint(run.path(saved)));
    REQUIRE(steps.back() >= step);
    step = steps.back();
  }
  REQUIRE(step >= 3);
  save(run, step + 1);
  prune_checkpoints(run.dir, step + 1, 1, 0);
  REQUIRE(num_entries(run.dir) == 1);
}

TEST_CASE("checkpoint: mutated manifests are read or refused, nothing else", "[fuzz]") {
  const Run run;
  for (const auto& error : save_ranks(
           run, 3,
           {{whole("norm.weight", kScale), slice("embed.weight", kEmbed, 0, 5)}, {slice("embed.weight", kEmbed, 5, 12)}})) {
    REQUIRE(error == "");
  }
  const std::string valid = read_file(run.path(3) + "/manifest.json");
  std::mt19937_64 rng(2);
  int64_t accepted = 0;
  const int64_t count = fuzz_count();
  for (int64_t i = 0; i < count; ++i) {
    try {
      const Manifest manifest = parse_manifest(mutate(valid, rng), "m");
      check_slices(manifest, "m");
      for (const auto& file : manifest.files) REQUIRE(file.name.find('/') == std::string::npos);
      ++accepted;
    } catch (const Error& error) {
      REQUIRE(std::string_view(error.what()).find('\n') == std::string_view::npos);
    }
  }
  REQUIRE(accepted > 0);  // edits of white space
  REQUIRE(accepted < count);
}
