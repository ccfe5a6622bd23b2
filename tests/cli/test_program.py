"""The whole path of a user on a tiny model, and what every subcommand owes: help with an example, exit codes, one-line errors."""
import pytest

from conftest import read_metrics

COMMANDS = ["train", "launch", "eval", "generate", "data", "data prepare", "data inspect", "tokenize", "detokenize", "tokenizer",
            "tokenizer train", "checkpoint", "checkpoint inspect", "checkpoint verify", "config", "config show", "config keys", "bench", "bench routing", "bench decode",
            "compare", "plan", "import", "export", "doctor", "doctor comm"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(scatterlm, command):
    text = scatterlm(*command.split(), "--help", check=True).stdout
    assert "Example:\n  scatterlm " in text and command.split()[0] in text.split("Example:")[1]


@pytest.mark.parametrize("arguments", [
    (),
    ("trian",),
    ("train",),
    ("train", "no_such_file.yaml"),
    ("eval", "no_such_run"),
    ("generate", "no_such_run", "--temperature", "-1"),
    ("data", "prepare", "no_such_folder", "--out", "nowhere"),
])
def test_a_wrong_command_line_is_one_line_and_exit_code_2(scatterlm, arguments):
    result = scatterlm(*arguments)
    assert result.returncode == 2
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1, result.stderr


def test_train_evaluate_generate_verify(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, "--set", "train.steps=60", "--set", "train.eval_interval=30", check=True)
    metrics = read_metrics(runs / "tiny")
    assert [line["step"] for line in metrics] == list(range(1, 61))
    assert [line["step"] for line in metrics if line["val_loss"] is not None] == [30, 60]
    assert metrics[-1]["loss"] < metrics[0]["loss"] - 1

    result = scatterlm("eval", runs / "tiny", check=True).stdout
    assert f"validation loss {metrics[-1]['val_loss']:.4f}" in result
    assert "ok" in scatterlm("checkpoint", "verify", runs / "tiny", check=True).stdout

    sample = [scatterlm("generate", runs / "tiny", "--prompt", "int", "--max-tokens", 40, "--seed", 5, check=True).stdout
              for _ in range(2)]
    assert sample[0] == sample[1] and sample[0].startswith("int") and len(sample[0]) > 10


def test_a_finished_run_is_left_alone(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, check=True)
    before = (runs / "tiny/metrics.jsonl").read_bytes()
    scatterlm("train", tiny_config, check=True)
    assert (runs / "tiny/metrics.jsonl").read_bytes() == before


def test_a_long_prompt_counts_with_its_end(scatterlm, tiny_config, runs):
    """Attention over 100 kB takes a minute, and positions beyond the trained length mean nothing to the model."""
    scatterlm("train", tiny_config, "--set", "train.steps=1", check=True)
    end = "for while return index value int"  # 32 bytes, the length of the sequences
    long, short = (scatterlm("generate", runs / "tiny", "--prompt", "-", "--max-tokens", 20, input=text, check=True)
                   for text in (100_000 * "x" + end, end))
    assert long.stdout == 100_000 * "x" + short.stdout and len(end) == 32
    assert "it sees the last 32 of the prompt's 100032" in long.stderr and not short.stderr


def test_a_token_without_text_ends_generation(scatterlm, tiny_config, runs):
    """A vocabulary of padding beyond bytes and end-of-text, after one step as likely as text."""
    scatterlm("train", tiny_config, "--set", "model.vocab_size=1000", "--set", "train.steps=1", check=True)
    result = scatterlm("generate", runs / "tiny", "--prompt", "int", "--max-tokens", 200, "--temperature", 1, "--top-p", 1)
    assert result.returncode == 2 and result.stdout.startswith("int") and len(result.stderr.splitlines()) == 1
    assert "step_00000001: the model chose token " in result.stderr
    assert "of its vocabulary of 1000, but data.tokenizer: bytes has text for 257 tokens only" in result.stderr


def test_tokens_of_another_tokenizer_are_not_sampled(scatterlm, tiny_config, runs):
    scatterlm("train", tiny_config, "--set", "model.vocab_size=50304", "--set", "data.eot_token=50256", "--set", "train.steps=1", check=True)
    result = scatterlm("generate", runs / "tiny", "--prompt", "int")
    assert (result.returncode, result.stdout) == (2, "")
    assert "end with data.eot_token 50256, which is none of the 257 tokens of data.tokenizer: bytes" in result.stderr
    assert "validation loss" in scatterlm("eval", runs / "tiny", check=True).stdout
