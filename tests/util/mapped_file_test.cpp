#include "lib/util/mapped_file.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST_CASE("mapped file: one that becomes shorter while it is in use is named, and ends the process") {
  const std::string path = (fs::temp_directory_path() / fmt::format("scatterlm_mapped_file_{}", getpid())).string();
  std::ofstream(path) << std::string(10000, 'x');
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    { const MappedFile before(path); }  // its entry is used again
    const MappedFile other("/proc/self/exe"), file(path);
    fs::resize_file(path, 10);
    _exit(file.data()[9000] == std::byte{'x'} ? 0 : 3);
  }
  close(ends[1]);
  char text[500];
  const ssize_t size = read(ends[0], text, sizeof(text));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == kExitFailure);
  REQUIRE(std::string_view(text, static_cast<size_t>(size)) ==
          "scatterlm: error: " + path +
              ": cannot read: it has become shorter while it was in use, or its storage has failed\n");
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
