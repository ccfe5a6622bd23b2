#include "lib/util/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string_view>

#include "lib/util/file_error.h"

namespace scatterlm {
namespace {

constexpr std::string_view kCutOff = ": cannot read: it has become shorter while it was in use, or its storage has failed\n";

/// Closes on every way out; the mapping outlives the descriptor.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

/// The mappings of this process, for the handler of SIGBUS, which may neither lock nor allocate. A mapping that ends leaves its
/// entry to a later one; none is ever freed.
struct Mapping {
  std::atomic<size_t> size = 0;  ///< 0: nothing is mapped
  std::atomic<const std::byte*> data = nullptr;
  std::string path;
  Mapping* next = nullptr;
};
std::atomic<Mapping*> mappings = nullptr;
std::mutex mappings_mutex;  // of those who add and remove

/// Touching a page fails if its file has become shorter since, or if the storage cannot deliver it.
void on_bus_error(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (const Mapping* mapping = mappings; mapping != nullptr; mapping = mapping->next) {
    const size_t size = mapping->size;
    const std::byte* data = mapping->data;
    if (size == 0 || address < data || address >= data + size) continue;
    const iovec parts[] = {{.iov_base = const_cast<char*>("scatterlm: error: "), .iov_len = 18},
                           {.iov_base = const_cast<char*>(mapping->path.data()), .iov_len = mapping->path.size()},
                           {.iov_base = const_cast<char*>(kCutOff.data()), .iov_len = kCutOff.size()}};
    [[maybe_unused]] const auto ignored = writev(STDERR_FILENO, parts, std::size(parts));
    _exit(kExitFailure);
  }
  signal(SIGBUS, SIG_DFL);  // not ours: the same access ends the process when it is tried again
}

void add_mapping(const std::string& path, const std::byte* data, size_t size) {
  const std::lock_guard lock(mappings_mutex);
  Mapping* mapping = mappings;
  while (mapping != nullptr && mapping->size != 0) mapping = mapping->next;
  const bool is_new = mapping == nullptr;
  if (is_new) mapping = new Mapping;
  mapping->path = path;
  mapping->data = data;
  mapping->size = size;
  if (!is_new) return;
  mapping->next = mappings;
  if (mapping->next == nullptr) {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, nullptr);
  }
  mappings = mapping;
}

void remove_mapping(const std::byte* data) {
  const std::lock_guard lock(mappings_mutex);
  for (Mapping* mapping = mappings; mapping != nullptr; mapping = mapping->next) {
    if (mapping->data == data) mapping->size = 0;
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: a named pipe without a writer must not hang the start.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) fail_file(path, "open", errno);
  struct stat info;
  if (fstat(file.fd, &info) != 0) fail_file(path, "open", errno);
  if (S_ISDIR(info.st_mode)) fail_file(path, "open", EISDIR);
  if (!S_ISREG(info.st_mode)) fail_user("{}: cannot open: not a regular file", path);
  if (info.st_size == 0) return;  // mmap refuses a length of 0
  void* start = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, file.fd, 0);
  if (start == MAP_FAILED) fail_file(path, "open", errno);
  data_ = static_cast<const std::byte*>(start);
  size_ = static_cast<size_t>(info.st_size);
  add_mapping(path, data_, size_);
}

void MappedFile::release(size_t begin, size_t end) const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t first = (begin + page - 1) / page * page, last = end / page * page;  // whole pages only
  if (first < last) madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (!data_) return;
  remove_mapping(data_);
  munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace scatterlm
