#include "lib/train/open_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <fstream>

#include "lib/train/run_folder.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/hash.h"
#include "tests/catch.h"
#include "tests/data/files.h"
#include "tests/distributed/ranks.h"

using namespace scatterlm;

namespace {

const at::Tensor kValues = at::arange(1000.).to(at::kFloat);

/// A run folder with checkpoints of these steps, as one rank writes them.
struct Run {
  explicit Run(const std::vector<int64_t>& steps) {
    std::filesystem::create_directories(dir);
    for (const int64_t step : steps) save_checkpoint(dir, {step, "", {{"step", step}}}, {{"values", {1000}, 0, 1000, kValues}});
  }
  std::string path(int64_t step) const { return checkpoint_path(dir, step); }
  /// Changes the last byte of a rank's file, which only its hash tells.
  void damage(int64_t step, int rank = 0) const {
    std::fstream file(fmt::format("{}/rank_{:05}.safetensors", path(step), rank),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }

  TempDir folder;
  std::string dir = folder / "run";
};

int64_t resumed_step(const ResumeRequest& request) {
  const auto comm = make_single_comm();
  const auto reader = checkpoint_to_resume(request, *comm, at::kCPU);
  return reader ? reader->contents().step : -1;
}

}  // namespace

TEST_CASE("the newest checkpoint that can be read is opened") {
  Run run({1, 2, 3});
  std::filesystem::create_directories(run.dir + "/.tmp_step_00000004");  // a save that a crash cut off
  REQUIRE(open_checkpoint(run.dir).contents().step == 3);
  run.damage(3);
  REQUIRE(open_checkpoint(run.dir).contents().step == 2);
  std::filesystem::remove(run.path(2) + "/manifest.json");
  REQUIRE(open_checkpoint(run.dir).contents().step == 1);
  REQUIRE(list_checkpoints(run.dir).size() == 3);  // reading sets nothing aside
  run.damage(1);
  REQUIRE_THROWS_WITH(open_checkpoint(run.dir), run.dir +
                                                    ": none of its 3 checkpoints can be read (see above); restore one, or "
                                                    "start again in another --run-dir");
  REQUIRE_THROWS_WITH(open_checkpoint(run.path(3)), ContainsSubstring("damaged"));
  REQUIRE_THROWS_WITH(open_checkpoint(run.folder / "rum"),
                      ContainsSubstring("rum: no such run or checkpoint folder, did you mean"));
  REQUIRE_THROWS_WITH(open_checkpoint(run.folder / ""), ContainsSubstring("holds no checkpoint; train first"));
}

TEST_CASE("a checkpoint of another program's format is not damaged: none before it is used instead") {
  const Run run({1, 2});
  const auto manifest = run.path(2) + "/manifest.json";
  std::string text = read_file(manifest);
  const auto format = text.find("\"format\": 1");
  REQUIRE(format != text.npos);
  text.replace(format, 11, "\"format\": 2");
  std::ofstream(manifest) << text;
  std::ofstream(run.path(2) + "/manifest.xxh3") << hash_hex(text) << "\n";
  REQUIRE_THROWS_WITH(resumed_step({run.dir, "auto"}), ContainsSubstring("format 2 is not known"));
  REQUIRE(list_checkpoints(run.dir) == std::vector<int64_t>{1, 2});
}

TEST_CASE("resuming sets aside the newer checkpoints that cannot be read, so that pruning keeps the good ones") {
  const Run run({800, 900, 1000});
  run.damage(1000);
  REQUIRE(resumed_step({.run_dir = run.dir, .resume = "auto", .dry_run = true}) == 900);
  REQUIRE(list_checkpoints(run.dir) == std::vector<int64_t>{800, 900, 1000});
  REQUIRE(resumed_step({.run_dir = run.dir, .resume = "auto"}) == 900);
  REQUIRE(list_checkpoints(run.dir) == std::vector<int64_t>{800, 900});
  REQUIRE(std::filesystem::exists(run.dir + "/rejected_step_00001000"));
  save_checkpoint(run.dir, {950, "", {}}, {});
  prune_checkpoints(run.dir, 950, 1, 0);
  REQUIRE(resumed_step({.run_dir = run.dir, .resume = "auto"}) == 950);
}

TEST_CASE("checkpoints that swapped their names are not resumed from") {
  const Run run({10, 20, 30});
  std::filesystem::rename(run.path(20), run.dir + "/x");
  std::filesystem::rename(run.path(30), run.path(20));
  std::filesystem::rename(run.dir + "/x", run.path(30));
  REQUIRE(resumed_step({.run_dir = run.dir, .resume = "auto"}) == 10);
}

TEST_CASE("nothing is set aside where no checkpoint can be read") {
  const Run run({1, 2});
  run.damage(1);
  run.damage(2);
  REQUIRE_THROWS_WITH(resumed_step({.run_dir = run.dir, .resume = "auto"}), ContainsSubstring("none of its 2 checkpoints"));
  REQUIRE(list_checkpoints(run.dir).size() == 2);
}

TEST_CASE("where to resume from: none, a folder, or what a restarted run has saved itself") {
  const Run run({1, 2}), other({5});
  const auto step = [&](const std::string& resume, bool restarted = false) {
    return resumed_step({.run_dir = run.dir, .resume = resume, .restarted = restarted});
  };
  REQUIRE(step(run.path(2)) == 2);
  REQUIRE(step("none", /*restarted=*/true) == 2);
  REQUIRE(resumed_step({.run_dir = run.folder / "new", .resume = "none", .restarted = true}) == -1);
  REQUIRE(resumed_step({.run_dir = run.folder / "new", .resume = other.dir}) == 5);
  REQUIRE_THROWS_WITH(step("none"),
                      ContainsSubstring("holds a checkpoint of step 2, so --resume none cannot start from step 0"));
  REQUIRE_THROWS_WITH(step(run.path(1)), ContainsSubstring("cannot start from step 1 here"));
  REQUIRE_THROWS_WITH(step(other.path(5)), ContainsSubstring("cannot start from step 5 here"));
}

TEST_CASE("ranks read every file of tensors once, and pass over what is damaged for one of them") {
  const Run run({1});
  test::Ranks ranks(2);
  const auto save = [&](int64_t step) {
    return ranks.run([&](Comm& comm) {
      const int64_t begin = 500 * comm.rank();
      save_checkpoint(run.dir, {step, "", {}}, {{"values", {1000}, begin, begin + 500, kValues.slice(0, begin, begin + 500)}},
                      {comm.rank(), comm.world(), [&] { comm.barrier(); }});
      return true;
    });
  };
  REQUIRE(save(2) == test::ExitCodes{0, 0});
  REQUIRE(save(3) == test::ExitCodes{0, 0});
  run.damage(3, /*rank=*/1);
  const uint64_t texts = 5;  // "" and "null\n"
  REQUIRE(ranks.run([&](Comm& comm) {
    const auto reader = checkpoint_to_resume({.run_dir = run.dir, .resume = "auto"}, comm, at::kCPU);
    const auto own = fmt::format("{}/rank_{:05}.safetensors", run.path(2), comm.rank());
    return reader && reader->contents().step == 2 && at::equal(reader->read("values"), kValues) &&
           reader->verified_bytes() == std::filesystem::file_size(own) + texts;
  }) == test::ExitCodes{0, 0});
  REQUIRE(list_checkpoints(run.dir) == std::vector<int64_t>{1, 2});
}
