#include "lib/report/tensorboard.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "lib/util/error.h"

#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

TEST_CASE("tensorboard: CRC-32C gives the published values") {
  REQUIRE(crc32c("") == 0);
  REQUIRE(crc32c("123456789") == 0xE3069283);
  REQUIRE(crc32c(std::string(32, '\0')) == 0x8A9136AA);  // RFC 3720, B.4
}

TEST_CASE("tensorboard: files of two starts within a second sort by start") {
  const std::string dir = fs::temp_directory_path() / fmt::format("scatterlm_tensorboard_{}", getpid());
  fs::remove_all(dir);
  std::vector<std::string> names;
  for (int start = 0; start < 12; ++start) {
    TensorBoardWriter writer(dir, start);
    for (const auto& entry : fs::directory_iterator(dir)) {
      const std::string name = entry.path().filename();
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  REQUIRE(names.size() == 12);
  REQUIRE(std::is_sorted(names.begin(), names.end()));
  fs::remove_all(dir);
}

TEST_CASE("tensorboard: a folder that cannot be made") {
  REQUIRE_THROWS_WITH(TensorBoardWriter("/proc/version/tb"), "/proc/version/tb: cannot create: Not a directory");
}

// tests/cli/test_tensorboard.py runs this one and reads the folder with the tensorboard package.
TEST_CASE("sample for the reader of TensorBoard files", "[.]") {
  const char* dir = std::getenv("SCATTERLM_TENSORBOARD_DIR");
  REQUIRE(dir != nullptr);
  const auto run = [dir](int64_t resume_step, int64_t last_step, double offset) {
    TensorBoardWriter writer(dir, resume_step);
    for (int64_t step = resume_step + 1; step <= last_step; ++step) {
      writer.scalar("train/loss", offset + 1. / static_cast<double>(step), step, 1e9 + static_cast<double>(step));
      if (step % 100 == 0) writer.histogram("router/loads", {0, 0.5, 0.5, 3}, step, 1e9);
      if (step % 100 == 0) writer.scalar("validation/loss", offset, step, 1e9 + static_cast<double>(step));
    }
    writer.flush();
  };
  run(0, 300, 0);
  run(200, 250, 10);  // crashed at 300, goes on from 200
}
