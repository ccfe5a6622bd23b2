#pragma once
#include <string>

namespace scatterlm {

/// A folder that is there in full or not at all: filled under the name PATH.tmp, renamed by commit(). Without commit() nothing
/// remains.
class NewFolder {
 public:
  /// Throws Error if there is something at `path`, other than an empty folder; a symbolic link is refused wherever it leads.
  explicit NewFolder(const std::string& path);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::string& temporary() const { return temporary_; }  ///< files go here
  void commit();

 private:
  std::string path_, temporary_;
  bool committed_ = false;
};

/// Throws as NewFolder would, and creates nothing: before long work.
void require_no_folder(const std::string& path);

}  // namespace scatterlm
