"""Tokens beside those of Hugging Face's tokenizers and OpenAI's tiktoken, and their way from text to a model and back."""
import base64
import gzip
import json
import random
import subprocess

import numpy as np
import pytest

from conftest import ROOT

tokenizers = pytest.importorskip("tokenizers")
tiktoken = pytest.importorskip("tiktoken")

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
KINDS = ["gpt2", "prefix_space", "neox", "llama3", "qwen", "deepseek", "deepseek_coder"]


def mixed_text(seed, size):
    """Words of many scripts, marks, numbers and all kinds of white space."""
    pick = random.Random(seed)
    ranges = [(0x41, 0x5b), (0x61, 0x7b), (0x30, 0x3a), (0xc0, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x500), (0x590, 0x600), (0x600, 0x700),
              (0x900, 0x980), (0xe00, 0xe80), (0x1100, 0x1200), (0x3040, 0x3100), (0x4e00, 0x9fff), (0xac00, 0xd7a4), (0x1f300, 0x1f600), (0x2000, 0x2070)]
    separators = [" "] * 12 + ["\n", "  ", "\t", "\n\n", "\u3000", "\u00a0", ", ", "'s ", "'LL ", "   \n", "\r\n", " \u180e", "_", "/", "\u0085"]
    words = []
    for _ in range(size):
        first, last = pick.choice(ranges)
        words.append("".join(chr(pick.randrange(first, last)) for _ in range(pick.randrange(1, 9))) + pick.choice(separators))
    return "".join(words)


def code_text(files):
    return "".join(path.read_text() for path in sorted((ROOT / "lib").glob("*/*.cpp"))[:files])


@pytest.fixture(scope="module")
def learned():
    """Vocabulary and merges of 600 tokens from source code, and tokens that reveal where pieces begin and end at any character."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=600, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    model.train_from_iterator([code_text(20), mixed_text(0, 2000)], trainer)
    content = json.loads(model.to_str())["model"]
    vocabulary, merges = content["vocab"], [tuple(pair) for pair in content["merges"]]
    symbols = {byte: symbol for symbol, byte in byte_of_symbol().items()}
    for byte in range(128, 256):
        for pair in (("a", symbols[byte]), (symbols[byte], "b"), (symbols[32], symbols[byte]), (symbols[byte], "1")):
            if "".join(pair) not in vocabulary:
                vocabulary["".join(pair)] = len(vocabulary)
                merges.append(pair)
    return vocabulary, merges


def byte_of_symbol():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{chr(byte): byte for byte in printable}, **{chr(256 + i): byte for i, byte in enumerate(others)}}


def reference(kind, learned):
    """A tokenizer of `tokenizers` as published models have it."""
    steps = tokenizers.pre_tokenizers
    vocabulary, merges = learned
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges, ignore_merges=kind == "llama3"))

    def split(*patterns):
        return steps.Sequence([*(steps.Split(tokenizers.Regex(pattern), "isolated") for pattern in patterns),
                               steps.ByteLevel(add_prefix_space=False, use_regex=False)])

    if kind in ("gpt2", "prefix_space", "neox"):
        model.pre_tokenizer = steps.ByteLevel(add_prefix_space=kind == "prefix_space", use_regex=True)
    elif kind == "deepseek":
        model.pre_tokenizer = split(*DEEPSEEK)
    elif kind == "deepseek_coder":
        model.pre_tokenizer = steps.Sequence([steps.Split(tokenizers.Regex(r"[\r\n]"), "isolated"), steps.Split(tokenizers.Regex(r"\s?\p{L}+"), "isolated"),
                                              steps.Split(tokenizers.Regex(r"\s?\p{P}+"), "isolated"), steps.Digits(individual_digits=True),
                                              steps.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        model.pre_tokenizer = split(PATTERNS[kind])
    if kind in ("neox", "qwen"):
        model.normalizer = tokenizers.normalizers.NFC()
    if kind == "neox":
        model.add_tokens([tokenizers.AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)])
        model.add_tokens([tokenizers.AddedToken("int x", lstrip=True, rstrip=True, normalized=False), tokenizers.AddedToken("\u00e9", normalized=True)])
    model.decoder = tokenizers.decoders.ByteLevel()
    model.add_special_tokens(["<|endoftext|>"])
    model.encode_special_tokens = True
    return model


@pytest.fixture
def tokenize(scatterlm, tmp_path):
    """tokenize(tokenizer, text or bytes, option...) -> ids."""

    def run(tokenizer, text, *options):
        path = tmp_path / "text"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return [int(word) for word in scatterlm("tokenize", "--tokenizer", tokenizer, path, *options, check=True).stdout.split()]

    return run


def first_difference(ours, theirs):
    """Kept short: pytest would print both lists."""
    if ours == theirs:
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return at, ours[at:at + 8], theirs[at:at + 8]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_of_hugging_face(kind, learned, tokenize, tmp_path):
    model = reference(kind, learned)
    model.save(str(tmp_path / "tokenizer.json"))
    points = [chr(code) for code in range(0x110000) if not 0xd800 <= code < 0xe000]
    if kind == "deepseek_coder":  # Digits follows Rust's Unicode 17
        points = [point for point in points if not 0x11de0 <= ord(point) <= 0x11de9 and not 0x16ff4 <= ord(point) <= 0x16ff6]
    points = points[KINDS.index(kind)::4 * len(KINDS)] + points[:0x400]
    texts = [code_text(8), mixed_text(1, 5_000), "".join(f"a{point}b {point}1\n" for point in points), "", " ", "a<|endoftext|>b"]
    for text in texts:
        assert first_difference(tokenize(tmp_path, text), model.encode(text, add_special_tokens=False).ids) is None
    model.encode_special_tokens = False
    text = "a<|endoftext|>  b<|endoftext|>"
    assert tokenize(tmp_path, text, "--special") == model.encode(text, add_special_tokens=False).ids


# What Oniguruma and PCRE2 read in the same way, or is translated. tests/tokenizer/split_pattern_test.cpp has what is refused.
COMMON_PATTERNS = [
    r"a{0,2}b", r"[ab]{2}", r"[ab]{2,}?", r"a{2", r"x{a}", r"(?i)a|b|k|s", r"(?i:ab|K)|c", r"(?-i:a)b", r"(?<name>ab)+", r"(?>a|ab)c", r"a++b", r"a*?b",
    r"^\s*a", r"[ab]$", r"b\z", r".+", r"\n+", r"\t\n\f\r\a\e", r"\x{e9}|\x41|\o{102}", r"[\x41-\x43\x{e9}-\x{ff}]+", r"[]a]+", r"[^]a]+", r"(?<=a)b", r"(?<!a)b",
    r"(?=a)ab?", r"a(?!b)", r"\d+", r"\D+", r"\s+", r"\S+", r"\w+", r"[^\s\w]+", r"\p{^L}+", r"\P{L}+", r"\p{Lu}\p{Ll}+", r"[^\p{N}]+", r"(?i:\p{Lu})", r"[\p{P}\p{S}]+",
    r"\p{Han}+", r"[\p{Hiragana}\p{Katakana}]+", r"\p{Hangul}+", r"\p{Latin}+", r"\p{Cyrillic}+", r"\p{Greek}+", r"\p{Arabic}+", r"\p{Thai}+", r"\p{Devanagari}+", r"\p{Hebrew}+",
    r"\p{Tamil}+", r"\p{Bopomofo}+", r"[\p{Lt}\p{Lm}\p{Lo}]+", r"[\p{Mn}\p{Mc}\p{Me}]+", r"[\p{Nl}\p{No}]+", r"[\p{Pc}\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po}]+", r"[\p{Sm}\p{Sc}\p{Sk}\p{So}]+",
    r"[\p{Z}]+|\p{Zs}|\p{Zl}|\p{Zp}",
]


@pytest.mark.parametrize("pattern", COMMON_PATTERNS)
def test_patterns_of_hugging_face(pattern, learned, tokenize, tmp_path):
    steps = tokenizers.pre_tokenizers
    vocabulary, merges = learned
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    points = "".join(chr(code) for code in [*range(1, 0x3200), *range(0x3200, 0x32000, 11)] if not 0xd800 <= code < 0xe000)
    text = mixed_text(7, 1000) + "aab abc aAbB aaab a{2 xa} AB kK\u212a s\u017f\n a\nb\n \t\n\f\r\a\x1b ]a[" + points
    for behavior, invert in (("isolated", False), ("removed", True)):
        model.pre_tokenizer = steps.Sequence([steps.Split(tokenizers.Regex(pattern), behavior, invert), steps.ByteLevel(add_prefix_space=False, use_regex=False)])
        model.save(str(tmp_path / "tokenizer.json"))
        assert first_difference(tokenize(tmp_path, text), model.encode(text, add_special_tokens=False).ids) is None


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base", "r50k_base"])
def test_tokens_of_tiktoken(name, tokenize, learned, tmp_path):
    ours = bytes_by_rank(learned)
    pattern = tiktoken_pattern(name)
    theirs = tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks={token: rank for rank, token in enumerate(ours)}, special_tokens={})
    path = tmp_path / f"mine.{name}.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(ours)))
    points = "".join(f"a{chr(code)}b {chr(code)}1\n" for code in [*range(0x3000), *range(0x3000, 0x110000, 7)] if not 0xd800 <= code < 0xe000)
    for text in (code_text(40), mixed_text(2, 10_000), points, "ends in white space \n \n  ", "a<|endoftext|>'LL'll"):
        assert first_difference(tokenize(path, text), theirs.encode(text, disallowed_special=())) is None


def test_a_tokenizer_that_checkpoints_cannot_hold(scatterlm, learned, tiny_config, runs, tmp_path):
    path = tmp_path / "my r50k_base.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(bytes_by_rank(learned))))
    result = scatterlm("train", tiny_config, "--set", f"data.tokenizer={path}")
    assert result.returncode == 2 and "checkpoints cannot hold a file named \"my r50k_base.tiktoken\"; rename it" in result.stderr
    assert not (runs / "tiny").exists()


def bytes_by_rank(learned):
    symbols = byte_of_symbol()
    return [bytes(symbols[symbol] for symbol in token) for token, _ in sorted(learned[0].items(), key=lambda item: item[1])]


def tiktoken_pattern(name):
    import tiktoken_ext.openai_public as public
    original, public.load_tiktoken_bpe = public.load_tiktoken_bpe, lambda *_, **__: {}
    try:
        return getattr(public, name)()["pat_str"]
    finally:
        public.load_tiktoken_bpe = original


def test_vocabulary_and_merges_as_two_files(learned, tokenize, tmp_path):
    vocabulary, merges = learned
    (tmp_path / "vocab.json").write_text(json.dumps({**vocabulary, "<|endoftext|>": len(vocabulary)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    text = code_text(10)
    assert first_difference(tokenize(tmp_path, text), reference("gpt2", learned).encode(text).ids) is None
    assert tokenize(tmp_path / "vocab.json", "<|endoftext|>", "--special") == [len(vocabulary)]


def test_bytes_that_are_no_text_come_back(binary, learned, tmp_path):
    reference("llama3", learned).save(str(tmp_path / "tokenizer.json"))
    broken = random.Random(3).randbytes(50_000) + b"caf\xc3 \xe2\x82 \xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf " + "\u20ac".encode()
    ids = subprocess.run([binary, "tokenize", "--tokenizer", tmp_path], input=broken, capture_output=True, check=True).stdout
    assert subprocess.run([binary, "detokenize", "--tokenizer", tmp_path], input=ids, capture_output=True, check=True).stdout == broken


@pytest.mark.parametrize("pattern", ["gpt2", "llama3"])
def test_a_learned_tokenizer_is_that_of_hugging_face(pattern, scatterlm, tokenize, tmp_path):
    text = code_text(12) + mixed_text(4, 2000)
    (tmp_path / "text.txt").write_text(text, newline="")
    scatterlm("tokenizer", "train", tmp_path / "text.txt", "--vocab-size", 900, "--pattern", pattern, "--out", tmp_path / "tokenizer.json", check=True)
    ours = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours.encode_special_tokens = True
    assert ours.get_vocab_size() == 900 and ours.token_to_id("<|endoftext|>") == 899
    other = code_text(25) + mixed_text(5, 2000)
    assert first_difference(tokenize(tmp_path, other), ours.encode(other).ids) is None

    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    steps = tokenizers.pre_tokenizers
    theirs.pre_tokenizer = steps.Sequence([steps.Split(tokenizers.Regex(PATTERNS[pattern]), "isolated"), steps.ByteLevel(add_prefix_space=False, use_regex=False)])
    theirs.train_from_iterator([text], tokenizers.trainers.BpeTrainer(vocab_size=899, min_frequency=2, show_progress=False,
                                                                      initial_alphabet=steps.ByteLevel.alphabet()))
    merges = [json.loads(tokenizer.to_str())["model"]["merges"] for tokenizer in (ours, theirs)]
    assert first_difference(*merges) is None


@pytest.mark.parametrize("arguments, message", [
    (("--vocab-size", 300, "--out", "gone/t.json"), "gone: no such folder, for --out gone/t.json"),
    (("--vocab-size", 300, "--out", "t.json", "--special", "<a>", "--special", "<a>"), "--special '<a>' is given twice"),
    (("--vocab-size", 300, "--out", "t.json", "--special", ""), "--special: a name must not be empty"),
    (("--vocab-size", 300, "--out", "t.json", "--special", "<\udcff>"), '--special "<\\ufffd>": not valid UTF-8'),
    (("--vocab-size", 300, "--out", "t.json", "--special", "EOS"), "--special 'EOS' may also be a word that is learned; put it in brackets, for example '<|EOS|>'"),
    (("--vocab-size", 300, "--out", "t.json", "--special", "\u0120the"), "may also be a word that is learned"),
    (("--vocab-size", 300, "--out", "t"), "--out t: as a tokenizer only files are read whose names end in .json and are not vocab.json"),
    (("--vocab-size", 300, "--out", "vocab.json"), "--out vocab.json: as a tokenizer only files are read"),
    (("--vocab-size", 257, "--out", "t.json", "--special", "<a>", "--special", "<b>"), "--vocab-size 257 is below 258"),
    (("--vocab-size", 300, "--out", "old.json"), "old.json: exists"),
    (("--vocab-size", 300, "--out", "t.json", "--pattern", "mine"), "unknown split pattern 'mine', there are: gpt2, cl100k, o200k, llama3, qwen"),
])
def test_learning_refuses_before_it_reads(arguments, message, scatterlm, tmp_path):
    (tmp_path / "text.txt").write_bytes(b"PAR1\x15")  # which it would refuse later
    (tmp_path / "old.json").write_text("{}")
    result = scatterlm("tokenizer", "train", "text.txt", *arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "") and message in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "t.json").exists()


def words_text(size):
    pick = random.Random(6)
    words = ["int", "float", "return", "value", "index", "for", "while", "(", ")", "{", "}", ";\n", "=", "+", "0", "1"]
    return " ".join(pick.choice(words) for _ in range(size))


@pytest.fixture
def learned_data(scatterlm, tmp_path):
    """tokenizer.json, and data/train.bin and data/val.bin made with it from JSON lines."""
    (tmp_path / "text.txt").write_text(words_text(3000))
    scatterlm("tokenizer", "train", tmp_path / "text.txt", "--vocab-size", 280, "--out", tmp_path / "tokenizer.json", check=True)
    documents = [json.dumps({"text": words_text(60)}) for _ in range(200)]
    with gzip.open(tmp_path / "documents.jsonl.gz", "wt") as file:
        file.write("\n".join(documents))
    scatterlm("data", "prepare", tmp_path / "documents.jsonl.gz", "--tokenizer", tmp_path / "tokenizer.json", "--val-every", 10, "--out", tmp_path / "data",
              check=True)
    return tmp_path / "data"


def test_a_tokenizer_travels_from_data_to_generated_text(scatterlm, tiny_config, runs, learned_data, tmp_path):
    sets = [f"--set={key}={value}" for key, value in {
        "data.train": learned_data / "train.bin", "data.validation": learned_data / "val.bin", "data.tokenizer": learned_data, "data.eot_token": 279,
        "model.vocab_size": 280}.items()]
    scatterlm("train", tiny_config, *sets, "--set", "train.steps=4", check=True)
    (tmp_path / "tokenizer.json").unlink()
    copy = (learned_data / "tokenizer.json").read_bytes()
    assert (runs / "tiny/tokenizer.json").read_bytes() == copy == (runs / "tiny/step_00000004/tokenizer.json").read_bytes()
    (learned_data / "tokenizer.json").unlink()
    result = scatterlm("generate", runs / "tiny", "--prompt", "int value", "--max-tokens", 12, "--temperature", 0, check=True)
    assert result.stdout.startswith("int value") and len(result.stdout) > len("int value\n")
    assert "validation loss" in scatterlm("eval", runs / "tiny", check=True).stdout
    assert scatterlm("checkpoint", "verify", runs / "tiny", check=True)


@pytest.mark.parametrize("sets, message", [
    ({"data.tokenizer": "bytes"}, "train.bin: was made with another tokenizer"),
    ({"data.tokenizer": "DATA", "model.vocab_size": 279, "data.eot_token": 3}, "has 280 tokens, 'model.vocab_size: 279' must not be below that"),
    ({"data.tokenizer": "DATA", "model.vocab_size": 400, "data.eot_token": 300}, "'data.eot_token: 300' is none of the 280 tokens"),
    ({"data.tokenizer": "gone.json"}, "unknown tokenizer 'gone.json'"),
])
def test_a_tokenizer_that_does_not_fit_ends_the_run_before_its_first_step(sets, message, scatterlm, tiny_config, runs, learned_data):
    values = {"data.train": learned_data / "train.bin", "data.validation": "null", "model.vocab_size": 280, "data.eot_token": 279, **sets}
    values = {key: learned_data if value == "DATA" else value for key, value in values.items()}
    if values["model.vocab_size"] < 280:  # the largest token, end-of-text, is not in this file
        values["data.train"] = write_tokens(learned_data / "small.bin", [1, 2, 3] * 1000)
    result = scatterlm("train", tiny_config, *(f"--set={key}={value}" for key, value in values.items()))
    assert result.returncode == 2 and message in result.stderr and len(result.stderr.splitlines()) == 1
    assert not list(runs.glob("tiny/step_*"))


def write_tokens(path, tokens):
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens, "<u2").tobytes())
    return path


def damaged(learned, change):
    content = json.loads(reference("llama3", learned).to_str())
    change(content)
    return json.dumps(content)


BROKEN = {
    "type": (lambda file: file["model"].update(type="Unigram"), """model: 'type: "Unigram"' is not supported"""),
    "fallback": (lambda file: file["model"].update(byte_fallback=True), "model: 'byte_fallback: true' is not supported"),
    "dropout": (lambda file: file["model"].update(dropout=0.1), "model: 'dropout: 0.1' is not supported"),
    "no bytes": (lambda file: file.update(pre_tokenizer={"type": "Metaspace"}), """pre_tokenizer: 'type: "Metaspace"' is not supported"""),
    "no pre_tokenizer": (lambda file: file.update(pre_tokenizer=None), "pre_tokenizer has no ByteLevel: only byte-level BPE is supported"),
    "normalizer": (lambda file: file.update(normalizer={"type": "Lowercase"}), """normalizer: 'type: "Lowercase"' is not supported"""),
    "pattern": (lambda file: file["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="(a"), "cannot use the pattern '(a': missing closing parenthesis"),
    "other syntax": (lambda file: file["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="[a[b]]"), "a character class inside of another one is not supported"),
    "missing byte": (lambda file: file["model"]["vocab"].pop("!"), "the vocabulary has no token for byte 33"),
    "number": (lambda file: file["model"]["vocab"].update({"!": 10 ** 9}), 'the number of token "!" is not one from 0 to'),
    "number twice": (lambda file: file["model"]["vocab"].update({"!": 1}), "number 1 stands for two tokens"),
    "merge": (lambda file: file["model"]["merges"].append(["q", "q"]), 'which is not in the vocabulary'),
    "merge twice": (lambda file: file["model"]["merges"].append(file["model"]["merges"][0]), "is given twice"),
    "merge of three": (lambda file: file["model"]["merges"].append(["a", "b", "c"]), 'merge ["a","b","c"] is not a list of two tokens'),
    "added": (lambda file: file["added_tokens"][0].update(id=5), 'has the number 5, which stands for another token'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tokenizer_is_one_line(name, scatterlm, learned, tmp_path):
    change, message = BROKEN[name]
    (tmp_path / "tokenizer.json").write_text(damaged(learned, change))
    result = scatterlm("tokenize", "--tokenizer", tmp_path, input="text")
    assert (result.returncode, result.stdout) == (2, "") and len(result.stderr.splitlines()) == 1
    assert str(tmp_path / "tokenizer.json") in result.stderr and message in result.stderr


def test_messages_name_the_file_that_was_given(scatterlm, learned, tmp_path):
    (tmp_path / "mine.json").write_text(damaged(learned, BROKEN["type"][0]))
    result = scatterlm("tokenize", "--tokenizer", tmp_path / "mine.json", input="text")
    assert result.returncode == 2 and str(tmp_path / "mine.json") in result.stderr and "tokenizer.json" not in result.stderr


@pytest.mark.parametrize("name, content, message", [
    ("cl100k_base.tiktoken", "IQ== 0\nIQ== 1\n", "the tokens of rank 0 and 1 are the same"),
    ("cl100k_base.tiktoken", "IQ== 0\n!!! 1\n", ":2: not a token in base64, a space and its rank: '!!! 1'"),
    ("cl100k_base.tiktoken", "IQ== 0\n", "no token for byte 0"),
    ("mine.tiktoken", "IQ== 0\n", "give it a name that holds one of"),
    ("tokenizer.json", '{"model": {"vocab"', "not valid JSON"),
    ("tokenizer.json", "[" * 100_000, "JSON is nested deeper than 64"),
    ("tokenizer.model", "", "SentencePiece's files are not supported"),
])
def test_broken_files_are_one_line(name, content, message, scatterlm, tmp_path):
    (tmp_path / name).write_text(content)
    result = scatterlm("tokenize", "--tokenizer", tmp_path / name, input="text")
    assert (result.returncode, result.stdout) == (2, "") and len(result.stderr.splitlines()) == 1
    assert message in result.stderr


def test_a_long_document_whose_pattern_looks_behind(scatterlm, learned, tmp_path):
    """It is read in several blocks, none of which can be split without the one before it."""
    vocabulary, merges = learned
    steps = tokenizers.pre_tokenizers
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=merges))
    model.pre_tokenizer = steps.Sequence([steps.Split(tokenizers.Regex(r"(?<!x)\p{N}{1,3}|\p{L}+|[^\p{L}\p{N}]+|\p{N}"), "isolated"),
                                          steps.ByteLevel(add_prefix_space=False, use_regex=False)])
    model.add_special_tokens(["<|endoftext|>"])
    model.save(str(tmp_path / "tokenizer.json"))
    text = "x12 ab 345 " * 250_000
    (tmp_path / "long.txt").write_text(text)
    scatterlm("data", "prepare", tmp_path / "long.txt", "--tokenizer", tmp_path / "tokenizer.json", "--out", tmp_path / "data", check=True)
    tokens = np.fromfile(tmp_path / "data/train.bin", "<u2", offset=1024)
    assert tokens[:-1].tolist() == model.encode(text).ids and tokens[-1] == model.token_to_id("<|endoftext|>")
