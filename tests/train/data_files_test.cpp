#include "lib/train/data_files.h"

#include <nlohmann/json.hpp>

#include "lib/util/error.h"
#include "tests/catch.h"
#include "tests/data/files.h"

using namespace scatterlm;

namespace {

Loader open(const std::vector<BlendEntry>& entries) {
  DataConfig data;
  data.train = entries;
  return Loader(data, 60000, 8, /*seed=*/1, 0, 1);
}

/// A checkpoint with this value of `data_files`, or none, and what check_same_data says about it.
struct Saved {
  explicit Saved(const std::optional<nlohmann::json>& files)
      : reader([&] {
          std::filesystem::create_directories(dir / "run");
          auto state = nlohmann::json::object();
          if (files) state["data_files"] = *files;
          return save_checkpoint(dir / "run", {1, "", state}, {});
        }()) {}
  std::string explain(const Loader& loader, bool allow_change = false) const {
    try {
      check_same_data(reader, loader.fingerprint(), allow_change);
      return "";
    } catch (const Error& error) {
      return error.code() == kExitUser ? error.what() : "another exit code";
    }
  }

  TempDir dir;
  CheckpointReader reader;
};

}  // namespace

TEST_CASE("data of a checkpoint: moved and renamed files are the same, every other change is named") {
  const TempDir dir;
  dir.write("a/t_0.bin", llmc_u16(iota(100)));
  dir.write("a/t_1.bin", llmc_u16(iota(50, 1000)));
  const Saved saved(to_json(open({{dir / "a/t_*.bin", 1}}).fingerprint()));
  const auto same = "";
  REQUIRE(saved.explain(open({{dir / "a/t_*.bin", 1}})) == same);
  dir.write("b/x.bin", llmc_u16(iota(100)));
  dir.write("b/y.bin", llmc_u16(iota(50, 1000)));
  REQUIRE(saved.explain(open({{dir / "b/*.bin", 1}})) == same);

  const auto grouped = saved.explain(open({{dir / "a/t_0.bin", 1}, {dir / "a/t_1.bin", 1}}));
  REQUIRE_THAT(grouped, ContainsSubstring("without t_1.bin (50 tokens") && ContainsSubstring("of entry 0; with t_1.bin") &&
                            ContainsSubstring("of entry 1"));
  dir.write("b/x.bin", llmc_u16(iota(50, 1000)));
  dir.write("b/y.bin", llmc_u16(iota(100)));
  REQUIRE_THAT(saved.explain(open({{dir / "b/*.bin", 1}})), ContainsSubstring("have changed since this checkpoint"));

  dir.write("a/t_0a.bin", llmc_u16(iota(30, 2000)));
  const auto added = saved.explain(open({{dir / "a/t_*.bin", 1}}));
  REQUIRE_THAT(added,
               ContainsSubstring("the files of data.train have changed since this checkpoint: with t_0a.bin (30 tokens, ") &&
                   ContainsSubstring("--set data.allow_change=true") && !ContainsSubstring("without"));
  REQUIRE(saved.explain(open({{dir / "a/t_*.bin", 1}}), /*allow_change=*/true) == same);
  std::filesystem::remove(dir / "a/t_0a.bin");
  std::filesystem::remove(dir / "a/t_1.bin");
  REQUIRE_THAT(saved.explain(open({{dir / "a/t_*.bin", 1}})), ContainsSubstring(": without t_1.bin (50 tokens"));
  auto tokens = iota(100);
  tokens[70] = 7;
  dir.write("a/t_0.bin", llmc_u16(tokens));
  dir.write("a/t_1.bin", llmc_u16(iota(50, 1000)));
  REQUIRE_THAT(saved.explain(open({{dir / "a/t_*.bin", 1}})),
               ContainsSubstring(": without t_0.bin (100 tokens, ") && ContainsSubstring("; with t_0.bin (100 tokens, "));
}

TEST_CASE("data of a checkpoint: swapped equal files of one source come in another order") {
  const std::vector<FileFingerprint> before = {{"a", 0, 5, "1"}, {"b", 0, 6, "2"}};
  REQUIRE(explain_change(before, {before[1], before[0]}) == "the files come in another order");
  std::vector<FileFingerprint> many(9, {"new", 1, 7, "3"});
  REQUIRE(
      explain_change({}, many) ==
      "with new (7 tokens, hash 3) of entry 1, new (7 tokens, hash 3) of entry 1, new (7 tokens, hash 3) of entry 1 and 6 more");
}

TEST_CASE("data of a checkpoint: one without files fits any, one with a damaged list is refused") {
  const TempDir dir;
  const auto loader = open({{dir.write("t.bin", llmc_u16(iota(100))), 1}});
  REQUIRE(Saved(std::nullopt).explain(loader) == "");
  for (const char* damaged : {R"([{"name": 3}])", "3", R"([{"name": "t.bin", "source": 0, "tokens": "9", "xxh3": ""}])"}) {
    const Saved saved(nlohmann::json::parse(damaged));
    REQUIRE_THAT(saved.explain(loader), ContainsSubstring("state.json: ") && ContainsSubstring("data_files"));
  }
}

TEST_CASE("data of the ranks is compared file by file") {
  const TempDir dir;
  dir.write("t_0.bin", llmc_u16(iota(100)));
  dir.write("v.bin", llmc_u16(iota(40000)));
  const auto identity = [&] {
    DataConfig data;
    data.train = {{dir / "t_*.bin", 1}};
    data.validation = {{dir / "v.bin", 1}};
    const EvalReader validation(data, 60000, 8, 0);
    return data_identity(Loader(data, 60000, 8, 1, 0, 1), &validation);
  };
  const auto first = identity();
  REQUIRE_THAT(first, ContainsSubstring("data.train[0] = t_0.bin (100 tokens, hash ") &&
                          ContainsSubstring("\ndata.validation[0] = v.bin (40000 tokens, hash "));
  REQUIRE(identity() == first);
  auto tokens = iota(40000);
  tokens.back() = 3;
  dir.write("v.bin", llmc_u16(tokens));
  REQUIRE(identity() != first);
}

TEST_CASE("data of a checkpoint: other documents over the same tokens are a change") {
  const TempDir dir;
  const auto write = [&](const std::vector<int64_t>& documents) {
    dir.write("m.bin", tokens_as<uint16_t>(iota(60)));
    dir.write("m.idx", megatron_index(8, 2, {20, 20, 20}, documents));
  };
  write({0, 1, 3});
  const Saved saved(to_json(open({{dir / "m", 1}}).fingerprint()));
  REQUIRE(saved.explain(open({{dir / "m", 1}})).empty());
  write({0, 2, 3});
  REQUIRE_THAT(saved.explain(open({{dir / "m", 1}})), ContainsSubstring("without m.bin (60 tokens"));
}
