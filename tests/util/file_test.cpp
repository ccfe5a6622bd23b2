#include "lib/util/file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "lib/util/file_error.h"
#include "lib/util/hash.h"
#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

TEST_CASE("hash: known values, pieces, every byte counts") {
  REQUIRE(hash_hex("") == "2d06800538d394c2");  // XXH3_64bits of no bytes, from the specification
  const std::string text(1000, 'x');
  Hash pieces;
  pieces.add(text.data(), 300);
  pieces.add(text.data() + 300, 700);
  REQUIRE(pieces.hex() == hash_hex(text));
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] ^= 1;
    REQUIRE(hash_hex(other) != hash_hex(text));
  }
}

TEST_CASE("file writer: commit replaces, no commit leaves all as it was") {
  const fs::path folder = fs::temp_directory_path() / fmt::format("scatterlm_file_{}", getpid());
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string path = folder / "a.txt";

  const FileDigest digest = write_file_atomic(path, "first");
  REQUIRE(read_file(path) == "first");
  REQUIRE(digest.bytes == 5);
  REQUIRE(digest.xxh3 == hash_hex("first"));
  {
    FileWriter abandoned(path);
    abandoned.write("second");
  }
  REQUIRE(read_file(path) == "first");
  write_file_atomic(path, "");
  REQUIRE(read_file(path).empty());
  REQUIRE(std::distance(fs::directory_iterator(folder), {}) == 1);
  fs::remove_all(folder);
}

TEST_CASE("a failed call is the user's to change, or the storage's failure") {
  const auto code = [](int error) {
    try {
      fail_file("a", "write", error);
    } catch (const StorageError& thrown) {
      return thrown.code();
    } catch (const Error& thrown) {
      return thrown.code();
    }
  };
  for (const int error : {ENOENT, EACCES, EPERM, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG}) REQUIRE(code(error) == kExitUser);
  for (const int error : {EIO, ESTALE, ENOSPC, EDQUOT, EROFS, ETIMEDOUT, EREMOTEIO, EMFILE, ENOMEM})
    REQUIRE(code(error) == kExitFailure);
}

TEST_CASE("whether a path exists is known, or an error") {
  const fs::path folder = fs::temp_directory_path() / fmt::format("scatterlm_exists_{}", getpid());
  fs::create_directories(folder);
  fs::create_symlink(folder / "loop", folder / "loop");
  std::ofstream(folder / "a") << "";
  REQUIRE(path_exists(folder / "a"));
  REQUIRE(is_folder(folder));
  REQUIRE_FALSE(is_folder(folder / "a"));
  REQUIRE_FALSE(path_exists(folder / "b"));
  REQUIRE_FALSE(path_exists(folder / "a/b"));
  REQUIRE_THROWS_WITH(path_exists(folder / "loop"), ContainsSubstring("cannot open: Too many levels of symbolic links"));
  REQUIRE_THROWS_WITH(is_folder(folder / std::string(300, 'x')), ContainsSubstring("cannot open: File name too long"));
  fs::remove_all(folder);
}

TEST_CASE("file writer: failures name the file and the reason") {
  REQUIRE_THROWS_WITH(write_file_atomic("/nonexistent/a", "x"), "/nonexistent/a: cannot write: No such file or directory");
  REQUIRE_THROWS_WITH(read_file("/nonexistent/a"), "/nonexistent/a: cannot open: No such file or directory");
  REQUIRE_THROWS_WITH(fsync_dir("/nonexistent"), "/nonexistent: cannot write: No such file or directory");

  const fs::path folder = fs::temp_directory_path() / fmt::format("scatterlm_full_{}", getpid());
  fs::create_directories(folder);
  const std::string path = folder / "a";
  // A limit on the size of files stands for a full disk.
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tight{1000, old.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tight);
  REQUIRE_THROWS_WITH(write_file_atomic(path, std::string(2000, 'x')), path + ": cannot write: File too large");
  setrlimit(RLIMIT_FSIZE, &old);
  REQUIRE(fs::is_empty(folder));
  fs::remove_all(folder);
}
