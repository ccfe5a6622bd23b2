// Names of checkpoint folders in a run folder: listing, pruning, setting aside, and what a crash leaves.
#include <filesystem>
#include <fstream>

#include "lib/io/checkpoint.h"
#include "tests/io/checkpoint_run.h"

#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

TEST_CASE("checkpoint: a run folder that is gone is not made again") {
  const Run run;
  fs::remove_all(run.dir);
  REQUIRE_THROWS_WITH(save(run, 1), run.dir + "/.tmp_step_00000001: cannot create: No such file or directory");
  std::ofstream(run.dir) << "a file";
  REQUIRE_THROWS_WITH(save(run, 1), run.dir + "/.tmp_step_00000001: cannot create: Not a directory");
  // What rank 0 could not create is not the other ranks' mistake.
  REQUIRE(save_ranks(run, 1, {tensors(), {}})[1] == run.path(1) + ": not saved: rank 0 has not created its folder");
}

TEST_CASE("checkpoint: what a crash has left is removed, and a checkpoint that was being replaced comes back") {
  const Run run;
  save(run, 1);
  save(run, 2);
  fs::rename(run.path(2), run.dir + "/.tmp_step_00000002_replaced");  // on a file system that cannot swap names
  fs::create_directories(run.dir + "/.tmp_step_00000002");
  fs::create_directories(run.dir + "/.tmp_step_00000001_replaced");
  fs::create_directories(run.dir + "/.tmp_removed_step_00000000/x");
  std::ofstream(run.dir + "/metrics.jsonl") << "";
  remove_unfinished(run.dir);
  REQUIRE(num_entries(run.dir) == 3);
  for (const int64_t step : {1, 2}) REQUIRE(!verify_checkpoint(run.path(step)));
}

TEST_CASE("checkpoint: a run folder that cannot be listed is not one without checkpoints") {
  const Run run;
  fs::create_directory_symlink(run.dir + "/loop", run.dir + "/loop");
  for (const auto& path : {run.dir + "/loop", run.dir + "/" + std::string(300, 'x')}) {
    REQUIRE_THROWS_WITH(list_checkpoints(path), ContainsSubstring(": cannot open: "));
    REQUIRE_THROWS_WITH(find_checkpoints(path), ContainsSubstring(": cannot open: "));
  }
}

TEST_CASE("checkpoint: list, find and prune") {
  const Run run;
  REQUIRE(list_checkpoints(run.dir + "/none").empty());
  REQUIRE(list_checkpoints(run.dir).empty());
  REQUIRE_THROWS_WITH(find_checkpoints(run.dir), ContainsSubstring(run.dir + ": holds no checkpoint"));
  for (const int64_t step : {10, 20, 30, 40, 123456789}) save(run, step);
  for (const char* other : {"step_50", "step_0000005x", ".tmp_step_00000050", "logs", "step_-0000001"}) {
    fs::create_directories(run.dir + "/" + other);
  }
  std::ofstream(run.dir + "/step_00000060") << "a file";
  REQUIRE(list_checkpoints(run.dir) == std::vector<int64_t>{10, 20, 30, 40, 123456789});
  REQUIRE(find_checkpoints(run.dir).back() == run.path(123456789));
  REQUIRE(find_checkpoints(run.path(20) + "/") == std::vector{run.path(20)});

  prune_checkpoints(run.dir, 123456789, 2, 20);
  REQUIRE(list_checkpoints(run.dir) == std::vector<int64_t>{20, 40, 123456789});
  REQUIRE(!fs::exists(run.dir + "/.tmp_step_00000050"));
  REQUIRE(fs::exists(run.dir + "/logs"));
  prune_checkpoints(run.dir, 123456789, 1, 0);
  REQUIRE(list_checkpoints(run.dir) == std::vector<int64_t>{123456789});
  prune_checkpoints(run.dir, 123456789, 5, 0);
  REQUIRE(list_checkpoints(run.dir).size() == 1);
}

TEST_CASE("checkpoint: pruning counts from what was just saved, and leaves later steps alone") {
  const Run run;
  for (const int64_t step : {900, 950, 1000}) save(run, step);
  prune_checkpoints(run.dir, 950, 1, 0);
  REQUIRE(list_checkpoints(run.dir) == std::vector<int64_t>{950, 1000});
}

TEST_CASE("checkpoint: a folder that was set aside is nobody's checkpoint any more, and none is lost") {
  const Run run;
  for (const char* suffix : {"", "_2", "_3"}) {
    save(run, 7);
    REQUIRE(set_checkpoint_aside(run.path(7)) == run.dir + "/rejected_step_00000007" + suffix);
    REQUIRE(list_checkpoints(run.dir).empty());
  }
  prune_checkpoints(run.dir, 7, 1, 0);
  REQUIRE(num_entries(run.dir) == 3);
  REQUIRE(CheckpointReader(run.dir + "/rejected_step_00000007").contents().step == 7);
}

TEST_CASE("checkpoint: a folder named for another step is refused") {
  const Run run;
  save(run, 15);
  fs::rename(run.path(15), run.path(99));
  REQUIRE(verify_checkpoint(run.path(99)).value() ==
          run.path(99) + ": holds step 15, as its manifest.json says; rename the folder to step_00000015");
  REQUIRE(verify_checkpoint(run.path(99) + "/"));
  fs::rename(run.path(99), run.dir + "/best");  // a name without a step may be any
  REQUIRE(CheckpointReader(run.dir + "/best").contents().step == 15);
}

TEST_CASE("checkpoint: ranks share the files to verify") {
  const Run run;
  const auto half = [](int64_t rank) { return std::vector{slice("embed.weight", kEmbed, 4 * rank, 4 * rank + 4)}; };
  for (const auto& error : save_ranks(run, 3, {half(0), half(1), half(2)})) REQUIRE(error == "");
  const std::string path = run.path(3);
  const auto bytes = [&](const std::string& name) { return fs::file_size(path + "/" + name); };
  const auto rank_bytes = [&](int rank) { return bytes(fmt::format("rank_{:05}.safetensors", rank)); };
  const uint64_t texts = bytes("config.yaml") + bytes("state.json");
  REQUIRE(CheckpointReader(path, {0, 2}).verified_bytes() == rank_bytes(0) + rank_bytes(2) + texts);
  REQUIRE(CheckpointReader(path, {1, 2}).verified_bytes() == rank_bytes(1) + texts);
  REQUIRE(CheckpointReader(path).verified_bytes() == rank_bytes(0) + rank_bytes(1) + rank_bytes(2) + texts);
  flip_bit(path + "/rank_00001.safetensors", static_cast<std::streamoff>(rank_bytes(1)) - 1, 2);
  REQUIRE_NOTHROW(CheckpointReader(path, {0, 2}));
  REQUIRE_THROWS_WITH(CheckpointReader(path, {1, 2}), ContainsSubstring("rank_00001.safetensors: damaged"));
}
