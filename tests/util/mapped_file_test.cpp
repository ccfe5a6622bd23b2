#include "lib/util/mapped_file.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "lib/util/error.h"
#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

TEST_CASE("mapped file: contents, empty file, move") {
  const fs::path path = fs::temp_directory_path() / "scatterlm_mapped_file_test";
  std::ofstream(path) << "abc";
  MappedFile file(path.string());
  REQUIRE(file.size() == 3);
  REQUIRE(std::memcmp(file.data(), "abc", 3) == 0);

  MappedFile moved(std::move(file));
  REQUIRE(moved.size() == 3);
  REQUIRE(file.data() == nullptr);
  file = std::move(moved);
  REQUIRE(file.size() == 3);

  std::ofstream(path, std::ios::trunc);
  const MappedFile empty(path.string());
  REQUIRE(empty.size() == 0);
  REQUIRE(empty.data() == nullptr);
  fs::remove(path);
}

TEST_CASE("mapped file: what is not a readable file is an error") {
  const fs::path path = fs::temp_directory_path() / "scatterlm_mapped_file_pipe";
  REQUIRE_THROWS_WITH(MappedFile("/nonexistent/a.bin"), "/nonexistent/a.bin: cannot open: No such file or directory");
  REQUIRE_THROWS_WITH(MappedFile("/tmp"), "/tmp: cannot open: Is a directory");
  fs::remove(path);
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  REQUIRE_THROWS_WITH(MappedFile(path.string()), path.string() + ": cannot open: not a regular file");
  fs::remove(path);
}
