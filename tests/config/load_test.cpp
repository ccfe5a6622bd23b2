#include "lib/config/load.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lib/config/difference.h"
#include "tests/config/bad_input.h"

#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

namespace {

struct TemporaryFolder {
  fs::path path;

  TemporaryFolder() {
    std::string name = fs::temp_directory_path() / "scatterlm_config_XXXXXX";
    path = mkdtemp(name.data());
  }
  ~TemporaryFolder() { fs::remove_all(path); }
};

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace

TEST_CASE("a file is read and names the run", "[config]") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "tiny.yaml";
  write(path, kMinimal);
  REQUIRE(load_config(path).run.name == "tiny");
  REQUIRE(load_config(path, {"run.name=other"}).run.name == "other");
  write(path, kMinimal + "log: {interval: 0}\n");
  REQUIRE_THROWS_WITH(load_config(path), path + ":3: key 'log.interval': got '0', must be an integer from 1 to 1000000000");
}

TEST_CASE("files that cannot be read", "[config]") {
  const TemporaryFolder folder;
  const std::string absent = folder.path / "absent.yaml", large = folder.path / "large.yaml";
  REQUIRE_THROWS_WITH(load_config(absent), absent + ": cannot read: No such file or directory");
  write(folder.path / "absence.yaml", kMinimal);
  REQUIRE_THROWS_WITH(load_config(absent), absent + ": cannot read: No such file or directory, did you mean '" +
                                               (folder.path / "absence.yaml").string() + "'?");
  REQUIRE_THROWS_WITH(load_config(folder.path), folder.path.string() + ": cannot read: Is a directory");
  const std::string pipe = folder.path / "pipe.yaml";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE_THROWS_WITH(load_config(pipe), pipe + ": cannot read: not a regular file");
  write(large, std::string((1 << 20) + 1, '#'));
  REQUIRE_THROWS_WITH(load_config(large), large + ": larger than 1 MiB, this is no configuration file");
}

TEST_CASE("a budget in tokens is rounded down to steps", "[config]") {
  REQUIRE(total_steps({.steps = 7}) == 7);
  REQUIRE(total_steps({.tokens = 4096 * 7 + 4095, .global_batch_tokens = 4096}) == 7);
}

TEST_CASE("differences name the keys", "[config]") {
  const Config first = parse_config(kMinimal, "x.yaml");
  REQUIRE(differences(first, first).empty());
  const auto found = differences(first, parse_config(kMinimal, "x.yaml", {"model.moe.num_experts=4", "optim.lr=1"}));
  REQUIRE(found.size() == 2);
  REQUIRE(found[0].key == "model.moe.num_experts");
  REQUIRE(found[0].first == "8");
  REQUIRE(found[0].second == "4");
  REQUIRE(found[1].key == "optim.lr");
}
