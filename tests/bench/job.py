"""A command of the program on some ranks, watched from outside: for benches and for tests of failures."""
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The 124M models are shipped with Muon; what is compared with other programs or between numbers of GPUs trains as GPT-2 usually is.
ADAMW = ("optim.name=adamw", "optim.lr=3.0e-4")
HALF_MILLION = "train.global_batch_tokens=524288"


class JobError(Exception):
    """The job ended or took too long; the text ends with what it printed."""


class Job:
    """The launcher with its ranks, or the program alone. It prints into files: a full pipe would hold it up. `launch` are options of
    the own launcher; `foreign` is the command of another one, whose ranks are its own affair."""

    def __init__(self, binary, ranks, *arguments, launch=(), foreign=(), env=None):
        self.ranks = 1 if foreign else ranks
        self.launched = self.ranks > 1 or bool(launch)
        launcher = ["launch", "-n", str(ranks), *map(str, launch)] if self.launched else []
        self.last_signal = signal.SIGTERM if foreign else signal.SIGKILL
        self.command = [*map(str, foreign), str(binary), *launcher, *map(str, arguments)]
        self.out, self.err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.start = time.monotonic()
        self.process = subprocess.Popen(self.command, cwd=ROOT, stdout=self.out, stderr=self.err, text=True, env={**os.environ, **(env or {})})
        self.pids = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def printed(self, file):
        return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait_until(self, condition, what, limit):
        """Seconds from the start of the job until the condition held."""
        deadline = time.monotonic() + limit
        while not condition():
            if self.process.poll() is not None and not condition():
                raise JobError(f"no {what}: exit code {self.process.returncode}\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise JobError(f"no {what} within {limit} s\n{self.last_words()}")
            time.sleep(0.002)
        return time.monotonic() - self.start

    def last_words(self):
        return f"{' '.join(self.command)}\n{self.printed(self.out)[-1500:]}{self.printed(self.err)[-1500:]}"

    def rank_pids(self):
        """Process ids by rank, once all have started."""
        def all_started():
            for pid in read_or_nothing(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split():
                match = re.search(r"\0RANK=(\d+)\0", "\0" + read_or_nothing(f"/proc/{pid}/environ") + "\0")
                if match:
                    self.pids[int(match[1])] = int(pid)
            return len(self.pids) == self.ranks

        if not self.launched:
            return {0: self.process.pid}
        self.wait_until(all_started, f"{self.ranks} ranks", 30)
        return self.pids

    def end(self, limit):
        """(exit code, stderr, seconds) when the launcher and every rank known by rank_pids() are gone."""
        start = time.monotonic()
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise JobError(f"not gone within {limit} s\n{self.last_words()}") from None
        seconds = time.monotonic() - start
        left = [rank for rank, pid in self.pids.items() if is_running(pid)]
        if left:
            raise JobError(f"the launcher is gone, ranks {left} are not\n{self.last_words()}")
        return self.process.returncode, self.printed(self.err), seconds

    def kill(self):
        """Without a chance to save: ranks die with their launcher. Those of a foreign one only if it can end them."""
        if self.process.poll() is None:
            if self.launched and not self.pids:
                self.rank_pids()
            self.process.send_signal(self.last_signal)
            self.process.wait()
        while any(is_running(pid) for pid in self.pids.values()):
            time.sleep(0.01)


def write_words(path, rng):
    """20,000 tokens in llm.c's layout (256 int32 of header, then uint16): bytes of random words, documents that end in token 256."""
    words = [bytes(rng.choices(range(97, 123), k=rng.randint(1, 6))) + b" " for _ in range(50)]
    tokens = []
    while len(tokens) < 20000:
        tokens += [*b"".join(rng.choices(words, k=80)), 256]
    path.write_bytes(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}H", *tokens))


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def read_or_nothing(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:  # gone meanwhile
        return ""


def is_running(pid):
    """Not gone, nor dead and merely not asked for by its parent."""
    state = read_or_nothing(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return bool(state) and state[0] not in "ZX"


def set_options(keys):
    """--set a.b=c for each."""
    return [part for key in keys for part in ("--set", key)]


def read_metrics(run):
    """The whole lines of metrics.jsonl so far."""
    lines = read_or_nothing(f"{run}/metrics.jsonl").split("\n")[:-1]
    return [json.loads(line) for line in lines]
