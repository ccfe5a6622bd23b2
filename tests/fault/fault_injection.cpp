// Calls of the system that fail on purpose. Linked to a test, or loaded into the program with LD_PRELOAD: calls on files below
// one folder are counted, and from the n-th on (or only that one) they fail, write less, or kill the process. A test calls
// inject_fault(); LD_PRELOAD reads the same from FAULT_FOLDER, FAULT_KIND and FAULT_CALL. With FAULT_CONTROL, a file that all
// processes map (FaultControl), faults begin and end while they run.
#include "tests/fault/fault_injection.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

constexpr int kDescriptors = 4096;

char folder[PATH_MAX];
FaultKind kind;
long fails_at, calls;
bool swaps = true;
bool inside[kDescriptors];  // descriptors of files below the folder
const volatile FaultControl* control;

long clock_offset_s() { return control ? static_cast<long>(control->clock_offset_s) : 0; }

}  // namespace

extern "C" {

void inject_fault(const char* below, FaultKind what, long call) {
  snprintf(folder, sizeof(folder), "%s/", below);
  kind = what;
  fails_at = call;
  calls = 0;
}

long faulty_calls() { return calls; }

void refuse_swaps() { swaps = false; }

__attribute__((constructor)) static void read_environment() {
  const char* below = getenv("FAULT_FOLDER");
  const char* shared = getenv("FAULT_CONTROL");
  if (below)
    inject_fault(below, static_cast<FaultKind>(shared ? 0 : atoi(getenv("FAULT_KIND"))),
                 shared ? 0 : atol(getenv("FAULT_CALL")));
  const int file = shared ? static_cast<int>(syscall(SYS_open, shared, O_RDONLY | O_CLOEXEC)) : -1;
  if (file < 0) return;
  void* mapped = mmap(nullptr, sizeof(FaultControl), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) control = static_cast<const volatile FaultControl*>(mapped);
  syscall(SYS_close, file);
}

static bool is_inside(int descriptor) { return descriptor >= 0 && descriptor < kDescriptors && inside[descriptor]; }

static bool is_below(int base, const char* path) {
  if (folder[0] == '\0') return false;
  return path[0] == '/' ? strncmp(path, folder, strlen(folder)) == 0 : is_inside(base);
}

// The errno with which this call is to fail, 0 for none.
static int fault(bool counts) {
  if (counts && control && control->read_only) return EROFS;
  if (!counts || fails_at == 0) return 0;
  const long call = ++calls;
  if (call == fails_at && kind == kFaultKill) raise(SIGKILL);
  const bool once = kind == kFaultIo || kind == kFaultQuota;
  if (once ? call != fails_at : call < fails_at) return 0;
  switch (kind) {
    case kFaultIo: return EIO;
    case kFaultQuota: return EDQUOT;
    case kFaultFull: return ENOSPC;
    case kFaultReadOnly: return EROFS;
    default: return 0;
  }
}

#define NEXT(name) (reinterpret_cast<decltype(&name)>(dlsym(RTLD_NEXT, #name)))
#define FAIL_IF(counts)                  \
  do {                                   \
    const int error = fault(counts);     \
    if (error) return errno = error, -1; \
  } while (0)

static int remember(int descriptor, bool below) {
  if (descriptor >= 0 && descriptor < kDescriptors) inside[descriptor] = below;
  return descriptor;
}

// Reading is not what is tested, and a full disk can be read.
static bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

#define DEFINE_OPEN(name)                                           \
  int name(const char* path, int flags, ...) {                      \
    va_list list;                                                   \
    va_start(list, flags);                                          \
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                   \
    const bool below = is_below(AT_FDCWD, path);                    \
    FAIL_IF(below&& writes(flags));                                 \
    return remember(NEXT(name)(path, flags, mode), below);          \
  }
DEFINE_OPEN(open)
DEFINE_OPEN(open64)

#define DEFINE_OPENAT(name)                                         \
  int name(int base, const char* path, int flags, ...) {            \
    va_list list;                                                   \
    va_start(list, flags);                                          \
    const mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0; \
    va_end(list);                                                   \
    const bool below = is_below(base, path);                        \
    FAIL_IF(below&& writes(flags));                                 \
    return remember(NEXT(name)(base, path, flags, mode), below);    \
  }
DEFINE_OPENAT(openat)
DEFINE_OPENAT(openat64)

ssize_t write(int descriptor, const void* data, size_t size) {
  const bool counts = is_inside(descriptor);
  FAIL_IF(counts);
  const bool is_short = counts && kind == kFaultShort && fails_at != 0 && calls >= fails_at && size > 1;
  return NEXT(write)(descriptor, data, is_short ? size / 2 : size);
}

int fsync(int descriptor) {
  FAIL_IF(is_inside(descriptor));
  if (is_inside(descriptor) && control) usleep(static_cast<useconds_t>(control->fsync_us));
  return is_inside(descriptor) ? 0 : NEXT(fsync)(descriptor);  // slow, and nobody cuts the power here
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += clock_offset_s();
  return result;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *out = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

int close(int descriptor) {
  const bool counts = is_inside(descriptor);
  remember(descriptor, false);
  const int result = NEXT(close)(descriptor);
  FAIL_IF(counts && !control);  // Linux closes it all the same
  return result;
}

int rename(const char* from, const char* to) noexcept {
  FAIL_IF(is_below(AT_FDCWD, from));
  return NEXT(rename)(from, to);
}

int renameat2(int from_base, const char* from, int to_base, const char* to, unsigned flags) noexcept {
  FAIL_IF(is_below(from_base, from));
  if (flags == RENAME_EXCHANGE && !swaps) return errno = EINVAL, -1;
  return NEXT(renameat2)(from_base, from, to_base, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  FAIL_IF(is_below(AT_FDCWD, path));
  return NEXT(mkdir)(path, mode);
}

int unlink(const char* path) noexcept {
  FAIL_IF(is_below(AT_FDCWD, path));
  return NEXT(unlink)(path);
}

int unlinkat(int base, const char* path, int flags) noexcept {
  FAIL_IF(is_below(base, path));
  return NEXT(unlinkat)(base, path, flags);
}

int rmdir(const char* path) noexcept {
  FAIL_IF(is_below(AT_FDCWD, path));
  return NEXT(rmdir)(path);
}

int remove(const char* path) noexcept {
  FAIL_IF(is_below(AT_FDCWD, path));
  return NEXT(remove)(path);
}

}  // extern "C"
