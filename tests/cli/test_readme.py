"""The commands of README's section on tokenizers and Hugging Face, as they stand there but for the sizes."""
import re
import shlex

import pytest

from conftest import ROOT

SECTION = "## Tokenizers, and models from and for Hugging Face"
# Small enough for seconds, and a vocabulary that so little text can fill.
SIZES = {"8192": "1024", "8191": "1023", "configs/": f"{ROOT}/configs/"}
SHORTER = {"runs/bpe": ["--set", "train.global_batch_tokens=1024", "--set", "train.tokens=40960"], "runs/tuned": ["--set", "train.steps=1"]}


def commands():
    section = (ROOT / "README.md").read_text().split(SECTION)[1]
    block = re.search(r"```\n(.*?)```", section, re.S)[1].replace("\\\n", "")
    for old, new in SIZES.items():
        block = block.replace(old, new)
    return [shlex.split(line) for line in block.splitlines()]


def test_from_text_to_hugging_face_and_back(scatterlm, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    notes = tmp_path / "notes"
    notes.mkdir()
    for i in range(50):  # --val-every 50 holds out the last
        (notes / f"{i:02}.md").write_bytes((ROOT / "docs/formats.md").read_bytes()[i * 300:][:4000])
    for command in commands():
        assert command[0] == "scatterlm"
        shorter = SHORTER.get(command[command.index("--run-dir") + 1], []) if "--run-dir" in command else []
        scatterlm(*command[1:], *shorter, cwd=tmp_path, check=True)

    text = scatterlm("eval", "runs/bpe", cwd=tmp_path, check=True).stdout
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf/bpe", dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf/bpe")
    tokens = tokenizer((notes / "49.md").read_text()).input_ids + [1023]
    assert (tmp_path / "data/bpe/val.bin").stat().st_size == 1024 + 2 * len(tokens)
    losses = []
    for begin in range(0, len(tokens) - 1, 256):  # sequences as `eval` cuts them
        piece = torch.tensor([tokens[begin:begin + 257]])
        with torch.no_grad():
            logits = model(piece[:, :-1]).logits
        losses += torch.nn.functional.cross_entropy(logits[0], piece[0, 1:], reduction="none").tolist()
    assert sum(losses) / len(losses) == pytest.approx(float(text.split("loss ")[1].split()[0]), abs=1e-4)
