#include "lib/util/new_folder.h"

#include <filesystem>

#include "lib/util/file.h"
#include "lib/util/file_error.h"

namespace scatterlm {
namespace {

std::string without_slash(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  return end == path.npos ? path : path.substr(0, end + 1);
}

}  // namespace

void require_no_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (path.empty()) fail_user("the name of the new folder is empty");
  if (fs::is_symlink(fs::symlink_status(without_slash(path), error)))
    fail_user("{}: already there, a symbolic link; remove it, or name another folder", path);
  if (path_exists(path) && !(fs::is_directory(path, error) && fs::is_empty(path, error)))
    fail_user("{}: already there; remove it, or name another folder", path);
}

NewFolder::NewFolder(const std::string& path) : path_(without_slash(path)), temporary_(path_ + ".tmp") {
  require_no_folder(path_);
  std::error_code error;
  require_no_folder(temporary_);  // another process's, or what a killed one has left: not ours to remove
  std::filesystem::create_directories(temporary_, error);
  if (error) fail_file(temporary_, "create", error.value());
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove_all(temporary_, ignored);
}

void NewFolder::commit() {
  fsync_dir(temporary_);
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);  // replaces an empty folder
  if (error) fail_file(path_, "create", error.value());
  committed_ = true;
  const auto parent = std::filesystem::path(path_).parent_path().string();
  fsync_dir(parent.empty() ? "." : parent);
}

}  // namespace scatterlm
