"""What every evidence file says about where its numbers come from."""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def versions(binary):
    """The lines of `scatterlm --version` by their first word."""
    text = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0]: line.split(None, 1)[1] for line in text.splitlines() if not line[0].isspace()}


def command(interpreter="python "):
    """That of this program: files elsewhere by their names alone, and without the parts that one run of several made."""
    words = [pathlib.Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    words = [word for i, word in enumerate(words) if word != "--part" and words[i - 1:i] != ["--part"]]
    return interpreter + " ".join([str(pathlib.Path(sys.argv[0]).resolve().relative_to(ROOT)), *words])


def of_binary(binary):
    """Date, versions, command and source hash. Ends the program if the binary was built from files that differ from the index."""
    lines = versions(binary)
    source_hash, state = lines["sources"].split(" ", 1)
    if "dirty" in state or source_hash == "unknown":
        sys.exit(f"{binary}: its sources are not those of the index: {lines['sources']}")
    return {"date": datetime.date.today().isoformat(), "torch": lines["LibTorch"], "command": command(),
            "sources": ["kernels", "lib", "app"], "source_hash": source_hash}


def of_gpus(bench, binary, num_gpus):
    """What a file of runs on GPUs says before its rows; ends the program as of_binary does."""
    lines = versions(binary)
    driver = subprocess.run("nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1", shell=True, capture_output=True, text=True)
    nccl = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")}
    return {"bench": bench, "gpu": lines["GPU"], "num_gpus": num_gpus, "cuda": re.match(r"[\d.]+", lines["CUDA"])[0],
            "driver": driver.stdout.strip(), "nccl_variables": nccl, **of_binary(binary)}


def cpu_name():
    found = re.search(r"^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else "unknown"


def of_cpu(bench):
    """What a file of runs on CPUs says before its rows; the sources by their commit: SOURCE_COMMIT where they are a copy without it."""
    described = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True)
    commit = os.environ.get("SOURCE_COMMIT") or described.stdout.strip() or "unknown"
    return {"bench": bench, "date": datetime.date.today().isoformat(), "cpu": cpu_name(), "commit": commit, "command": command(interpreter="")}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
