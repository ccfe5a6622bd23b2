"""Multiple-choice tasks and bits per byte: against transformers, on two ranks, and while a model trains."""
import json
import math
import random
import re

import numpy as np
import pytest

from conftest import END_OF_TEXT, read_metrics, write_token_file

WORDS = ["int", "float", "return", "value", "index", "for", "while", "(", ")", "{", "}", "=", "+", "0", "1"]


def write_task(path, examples):
    path.write_text("".join(json.dumps(example) + "\n" for example in examples))
    return path


def make_examples(seed, count):
    """Contexts of up to 24 bytes with choices of different lengths: with tiny_config's 32 tokens none is too long."""
    pick = random.Random(seed)
    return [{"context": " ".join(pick.choices(WORDS, k=2)), "choices": [" " + " ".join(pick.choices(WORDS, k=pick.randint(1, 2))) for _ in range(3)],
             "answer": pick.randrange(3)} for _ in range(count)]


def scores(text, name):
    """acc and acc_norm that eval prints."""
    return tuple(float(re.search(rf": {name}: .*?{key} ([\d.]+)", text)[1]) for key in ("acc", "acc_norm"))


@pytest.fixture
def trained(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, check=True)
    return runs / "tiny"


@pytest.mark.parametrize("ranks", [1, 2])
def test_accuracy_is_that_of_transformers(scatterlm, tiny_config, runs, tmp_path, ranks):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    sets = ["model.layers=gqa+moe*2", "model.moa=null", "model.dense=null"]
    scatterlm("train", tiny_config, *(part for key in sets for part in ("--set", key)), check=True)
    scatterlm("export", runs / "tiny", "--out", tmp_path / "hf", check=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).eval()

    def log_prob(context, choice):
        tokens = torch.tensor([list((context + choice).encode())])
        with torch.no_grad():
            log_probs = model(tokens[:, :-1]).logits[0].double().log_softmax(-1)
        each = log_probs.gather(1, tokens[0, 1:, None])
        return each[len(context) - 1:].sum().item()

    kept, right, right_norm = [], 0, 0
    for example in make_examples(1, 60):
        sums = [log_prob(example["context"], choice) for choice in example["choices"]]
        per_byte = [total / (len(choice) - 1) for total, choice in zip(sums, example["choices"])]
        if any(sorted(values)[-1] - sorted(values)[-2] < 1e-3 for values in (sums, per_byte)):
            continue  # rounding may decide
        kept.append(example)
        right += sums.index(max(sums)) == example["answer"]
        right_norm += per_byte.index(max(per_byte)) == example["answer"]
    task = write_task(tmp_path / "words.jsonl", kept)
    assert len(kept) > 30 and 0 < right < len(kept) and right != right_norm
    launch = ["launch", "-n", ranks] if ranks > 1 else []
    text = scatterlm(*launch, "eval", runs / "tiny", "--task", task, check=True).stdout
    assert scores(text, "words") == (round(right / len(kept), 4), round(right_norm / len(kept), 4)), text
    assert "(length in bytes), standard errors " in text and text.endswith(f", {len(kept)} examples\n")
    assert "validation" not in text and len(text.splitlines()) == 1


def test_two_ranks_evaluate_the_same(scatterlm, trained, tmp_path):
    tasks = ["--task", write_task(tmp_path / "a.jsonl", make_examples(2, 41)), "--task", write_task(tmp_path / "b.jsonl", make_examples(3, 1))]
    for options in ([], tasks, [*tasks, "--tokens", 64]):
        one = scatterlm("eval", trained, *options, check=True).stdout
        two = scatterlm("launch", "-n", 2, "eval", trained, *options, check=True).stdout
        assert one and two == "".join(f"[0] {line}\n" for line in one.splitlines())


def test_tasks_while_training(scatterlm, tiny_config, runs, tmp_path):
    task = write_task(tmp_path / "words.jsonl", make_examples(4, 30))
    sets = [f"train.eval_tasks=[{task}]", "train.eval_interval=10"]
    result = scatterlm("launch", "-n", 2, "train", tiny_config, *(part for key in sets for part in ("--set", key)), check=True)
    metrics = read_metrics(runs / "tiny")
    keys = [f"task/words/{key}" for key in ("acc", "acc_stderr", "acc_norm", "acc_norm_stderr")]
    for line in metrics:
        assert [key for key in line if key.startswith("task/")] == (keys if line["step"] in (10, 20) else [])
    text = scatterlm("eval", runs / "tiny", "--task", task, check=True).stdout
    assert scores(text, "words") == tuple(round(metrics[-1][key], 4) for key in (keys[0], keys[2]))
    lines = [line for line in result.stdout.splitlines() if line.startswith("[0] task ")]
    assert [line.split()[2] for line in lines] == ["0/20", "10/20", "20/20"]
    assert f"| words | acc {metrics[-1][keys[0]]:.4f} | acc_norm {metrics[-1][keys[2]]:.4f}" in lines[-1]


def test_a_bad_task_ends_the_training_before_it_begins(scatterlm, tiny_config, runs, tmp_path):
    task = write_task(tmp_path / "words.jsonl", [*make_examples(5, 2), {"context": "a", "choices": ["b", "c"], "answer": 2}])
    result = scatterlm("train", tiny_config, "--set", f"train.eval_tasks={task}")
    assert result.returncode == 2 and not runs.exists()
    assert result.stderr == f"scatterlm: error: {task}:3: 'answer' is 2, must be from 0 to 1, the number of one of 'choices'\n"


def test_a_long_context_is_said_once(scatterlm, trained, tmp_path):
    end = "return value index for while inx"
    assert len(end) == 32
    long = [{"context": 1000 * "x" + end, "choices": ["a", "b"], "answer": 0}] * 3
    short = [{"context": end, "choices": ["a", "b"], "answer": 0}] * 3
    first, second = (scatterlm("eval", trained, "--task", write_task(tmp_path / f"{name}.jsonl", examples), check=True)
                     for name, examples in (("long", long), ("short", short)))
    assert "6 of 6 choices have more tokens with their context than 'train.sequence_length: 32'; the beginning of the context is left out" in first.stderr
    assert first.stderr.count("left out") == 1 and "left out" not in second.stderr
    assert scores(first.stdout, "long") == scores(second.stdout, "short")


def test_llmc_tasks_need_gpt2_tokens(scatterlm, tiny_config, runs, tmp_path):
    stream = [65535, 0, 0, 1, 2, 2, 464, 3797, 1, 7704, 2, 373, 50256]
    stream[1] = 2 * len(stream)
    header = np.zeros(256, "<i4")
    header[:4] = 20240522, 1, 1, stream[1]
    task = tmp_path / "hellaswag_val.bin"
    task.write_bytes(header.tobytes() + np.asarray(stream, "<u2").tobytes())
    scatterlm("train", tiny_config, "--set", "train.steps=1", "--run-dir", runs / "bytes", check=True)
    result = scatterlm("eval", runs / "bytes", "--task", task)
    assert result.returncode == 2
    assert f"{task}: holds tokens of GPT-2, which has 50257, but 'model.vocab_size: 257'" in result.stderr
    scatterlm("train", tiny_config, "--set", "train.steps=1", "--set", "model.vocab_size=50304", "--set", "data.eot_token=50256",
              "--run-dir", runs / "gpt2", check=True)
    text = scatterlm("eval", runs / "gpt2", "--task", task, check=True).stdout
    assert ": hellaswag_val: acc " in text and "(length in tokens)" in text and text.endswith(", 1 examples\n")


def test_logits_are_for_one_rank(scatterlm, trained, tmp_path):
    result = scatterlm("launch", "-n", 2, "eval", trained, "--logits", tmp_path / "l", "--ids", tmp_path / "i")
    assert result.returncode == 2 and "--logits does not share its work among ranks: run it alone" in result.stderr


def bits_per_byte(line, targets, bytes_of_text):
    return line["val_loss"] * targets / math.log(2) / bytes_of_text


@pytest.mark.parametrize("ranks", [1, 2])
def test_bits_per_byte_of_bytes(scatterlm, tiny_config, tiny_data, runs, tmp_path, ranks):
    launch = ["launch", "-n", ranks] if ranks > 1 else []
    tokens = np.fromfile(tiny_data / "val.bin", "<u2")[512:]
    write_token_file(tmp_path / "text.bin", tokens[tokens != END_OF_TEXT])
    for data in (tiny_data / "val.bin", tmp_path / "text.bin"):
        run = runs / data.stem
        console = scatterlm(*launch, "train", tiny_config, "--set", f"data.validation={data}", "--run-dir", run, check=True).stdout
        line = read_metrics(run)[-1]
        targets = np.fromfile(data, "<u2")[513:]
        assert line["val_bpb"] == pytest.approx(bits_per_byte(line, len(targets), (targets != END_OF_TEXT).sum()), rel=1e-12)
        assert f" | bpb {line['val_bpb']:.4f}\n" in console
        assert f", {line['val_bpb']:.4f} bits per byte, " in scatterlm(*launch, "eval", run, check=True).stdout
    assert line["val_bpb"] == pytest.approx(line["val_loss"] / math.log(2), rel=1e-12)  # of the file without ends of text
    assert [step["val_bpb"] for step in read_metrics(run)[:-1]] == [None] * 19


def test_bits_per_byte_of_a_tokenizer(scatterlm, tiny_config, runs, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    pick = random.Random(6)
    texts = tmp_path / "texts"
    texts.mkdir()
    for i in range(10):
        (texts / f"{i}.txt").write_text(" ".join(pick.choices([*WORDS, "größe", "κόσμε", "\n"], k=400)))
    scatterlm("tokenizer", "train", texts, "--vocab-size", 300, "--out", tmp_path / "tokenizer.json", check=True)
    scatterlm("data", "prepare", texts, "--val-every", 5, "--tokenizer", tmp_path / "tokenizer.json", "--out", tmp_path / "bpe", check=True)
    sets = [f"data.train={tmp_path}/bpe/train.bin", f"data.validation={tmp_path}/bpe/val.bin", f"data.tokenizer={tmp_path}/bpe",
            "data.eot_token=299", "model.vocab_size=320"]
    scatterlm("train", tiny_config, *(part for key in sets for part in ("--set", key)), check=True)
    line = read_metrics(runs / "tiny")[-1]
    targets = np.fromfile(tmp_path / "bpe/val.bin", "<u2")[513:].tolist()
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = tokenizer.decode(targets, skip_special_tokens=True)
    assert 299 in targets and len(text.encode()) > 1.5 * len(targets)
    assert line["val_bpb"] == pytest.approx(bits_per_byte(line, len(targets), len(text.encode())), rel=1e-12)


def test_no_bits_per_byte_without_the_tokenizer(scatterlm, tiny_config, tiny_data, runs, tmp_path):
    write_token_file(tmp_path / "val.bin", [*range(50), 300])
    console = scatterlm("train", tiny_config, "--set", "model.vocab_size=301", "--set", f"data.validation={tmp_path}/val.bin", check=True).stdout
    assert read_metrics(runs / "tiny")[-1]["val_bpb"] is None and "bpb" not in console
    assert "bits per byte" not in scatterlm("eval", runs / "tiny", check=True).stdout
