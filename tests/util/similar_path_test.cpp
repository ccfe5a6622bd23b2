#include "lib/util/similar_path.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lib/util/mapped_file.h"
#include "tests/catch.h"

using namespace scatterlm;
namespace fs = std::filesystem;

namespace {

/// data/headers/{train,val}.bin and data/text.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("scatterlm_similar_" + std::to_string(getpid()));

  Folder() {
    fs::create_directories(path / "data/headers");
    fs::create_directories(path / "data/text");
    for (const char* name : {"train.bin", "val.bin"}) std::ofstream(path / "data/headers" / name) << "x";
  }
  ~Folder() { fs::remove_all(path); }

  std::string explain(const std::string& name) const { return explain_missing_path((path / name).string()); }
  std::string meant(const std::string& name) const { return ", did you mean '" + (path / name).string() + "'?"; }
};

}  // namespace

TEST_CASE("similar_path: a mistyped name, folder, both, and a missing extension") {
  const Folder folder;
  for (const char* typed : {"data/headers/trian.bin", "data/header/train.bin", "dat/headres/train.bni", "data/headers/train"})
    REQUIRE(folder.explain(typed) == folder.meant("data/headers/train.bin"));
  REQUIRE(folder.explain("data/header") == folder.meant("data/headers"));
}

TEST_CASE("similar_path: nothing where nothing is near, or the path is there") {
  const Folder folder;
  for (const char* typed :
       {"data/headers/tokens.npy", "data/headers/val.idx", "elsewhere/train.bin", "data/headers/train.bin", "data/headers/"})
    REQUIRE(folder.explain(typed).empty());
  REQUIRE(explain_missing_path("").empty());
}

TEST_CASE("similar_path: a file that cannot be opened says so") {
  const Folder folder;
  const auto path = (folder.path / "data/headers/vals.bin").string();
  REQUIRE_THROWS_WITH(MappedFile(path),
                      path + ": cannot open: No such file or directory" + folder.meant("data/headers/val.bin"));
}
