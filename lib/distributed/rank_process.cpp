#include "lib/distributed/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "lib/util/error.h"
#include "lib/util/limits.h"

namespace scatterlm {
namespace {

struct Pipe {
  int read = -1, write = -1;
};

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail("[launch] cannot make a pipe: {}{}", std::strerror(errno), explain_limit(errno));
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {ends[0], ends[1]};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// In the child, after fork(): only calls that are safe there, since the launcher has threads.
[[noreturn]] void become(char** arguments, char** environment, int out, int err, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(kExitFailure);  // it died before that
  setpgid(0, 0);                                   // Ctrl-C in a terminal reaches the launcher alone, which passes it on once
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  sigset_t children;  // signals to stop stay held back until the rank can deal with them, see block_stop_signals()
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_UNBLOCK, &children, nullptr);
  execve("/proc/self/exe", arguments, environment);
  _exit(kExitFailure);
}

/// The first line of a file of /proc; empty if it cannot be read.
std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string describe_process(pid_t pid) {
  const auto stat = read_line(fmt::format("/proc/{}/stat", pid));
  const auto state = stat.rfind(") ");  // after the program's name, which may hold anything
  const auto function = read_line(fmt::format("/proc/{}/wchan", pid));
  return fmt::format("process {}, state {}, waiting in {}", pid,
                     state + 2 < stat.size() && state != stat.npos ? stat.substr(state + 2, 1) : "unknown",
                     function.empty() || function == "0" ? "an unknown place (/proc/PID/wchan)" : function);
}

RankProcess::RankProcess(int64_t rank, const std::vector<std::string>& arguments, const std::vector<std::string>& environment)
    : rank_(rank) {
  auto entries = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  const auto argv = pointers(arguments), envp = pointers(entries);
  const Pipe out = make_pipe(), err = make_pipe();
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ == 0) become(const_cast<char**>(argv.data()), const_cast<char**>(envp.data()), out.write, err.write, launcher);
  const int reason = errno;
  close(out.write);
  close(err.write);
  out_ = {out.read, stdout};
  err_ = {err.read, stderr};
  if (pid_ < 0) fail("[launch] cannot start rank {}: {}{}", rank, std::strerror(reason), explain_limit(reason));
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : rank_(other.rank_),
      pid_(std::exchange(other.pid_, -1)),
      status_(other.status_),
      stopped_(other.stopped_),
      out_(std::exchange(other.out_, {})),
      err_(std::exchange(other.err_, {})) {}

RankProcess::~RankProcess() {
  send(SIGKILL);
  for (int i = 0; i < 100 && running() && !has_ended(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (const int fd : pipes()) {
    if (fd >= 0) close(fd);
  }
}

void RankProcess::send(int signal) const {
  if (running()) kill(pid_, signal);
}

bool RankProcess::has_ended() {
  int status = 0;
  while (running() && waitpid(pid_, &status, WNOHANG | WUNTRACED | WCONTINUED) == pid_) {
    stopped_ = WIFSTOPPED(status);
    if (stopped_ || WIFCONTINUED(status)) continue;
    pid_ = -1;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return true;
  }
  return false;
}

void RankProcess::relay(const Printer& print) {
  relay(out_, print);
  relay(err_, print);
}

void RankProcess::relay(Stream& stream, const Printer& print) {
  char buffer[4096];
  ssize_t size = 0;
  while (stream.fd >= 0 && (size = read(stream.fd, buffer, sizeof(buffer))) > 0) {
    stream.line.append(buffer, static_cast<size_t>(size));
    for (size_t end; (end = stream.line.find('\n')) != std::string::npos; stream.line.erase(0, end + 1)) {
      print(stream.to, std::string_view(stream.line).substr(0, end));
    }
  }
  if (stream.fd < 0 || size != 0) return;  // nothing more for now
  if (!stream.line.empty()) print(stream.to, stream.line);
  close(std::exchange(stream.fd, -1));
}

}  // namespace scatterlm
