"""import and export against transformers: equal logits, equal bytes, and what is refused."""
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/hf"))

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")

import reference  # noqa: E402

FAMILIES = sorted({model_type for model_type, _ in reference.CASES.values()})


def logits_of(scatterlm, checkpoint, folder, ids):
    """Logits of the program for ids [sequences, length]."""
    safetensors_torch.save_file({"input_ids": ids}, folder / "ids.safetensors")
    scatterlm("eval", checkpoint, "--ids", folder / "ids.safetensors", "--logits", folder / "logits.safetensors", check=True)
    return safetensors_torch.load_file(folder / "logits.safetensors")["logits"]


def tensors_of(folder):
    """Every tensor of a Hugging Face folder."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors.update(safetensors_torch.load_file(path))
    return tensors


def require_same_tensors(folder, other):
    first, second = tensors_of(folder), tensors_of(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == second[name].dtype and tensor.shape == second[name].shape, name
        assert tensor.contiguous().view(torch.uint8).equal(second[name].contiguous().view(torch.uint8)), name


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """models(name) -> folder of that case of reference.py, saved once."""
    folder = tmp_path_factory.mktemp("models")

    def get(name, dtype=torch.float32, **options):
        path = folder / f"{name}_{str(dtype)[6:]}{len(options)}"
        if not path.exists():
            reference.make(name, dtype).save_pretrained(path, **options)
        return path

    return get


@pytest.mark.parametrize("name", reference.CASES)
def test_logits_and_round_trip(scatterlm, models, tmp_path, name):
    source = models(name)
    ids = reference.token_ids()
    expected = reference.logits(reference.make(name), ids)
    assert expected.std() > 0.1  # else a difference of 1e-4 would say nothing
    scatterlm("import", source, "--out", tmp_path / "run", check=True)
    difference = (logits_of(scatterlm, tmp_path / "run", tmp_path, ids) - expected).abs().max().item()
    print(f"{name}: largest difference of logits {difference:.1e}, of {expected.abs().max():.1f}")
    assert difference < 1e-4
    out = tmp_path / "out"
    assert reference.CASES[name][0] in scatterlm("export", tmp_path / "run", "--out", out, check=True).stdout
    require_same_tensors(source, out)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(out, **reference.EAGER).eval()
    assert type(loaded) is type(reference.make(name))
    assert reference.logits(loaded, ids).equal(expected)


def test_shards_and_dtype(scatterlm, models, tmp_path):
    source = models("mixtral", torch.bfloat16, max_shard_size="20KB")
    assert len(list(source.glob("*.safetensors"))) > 2
    scatterlm("import", source, "--out", tmp_path / "run", check=True)
    scatterlm("export", tmp_path / "run", "--out", tmp_path / "out", "--shard-gb", "2e-5", check=True)
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 2
    require_same_tensors(source, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text())["torch_dtype"] == "bfloat16"
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    scatterlm("export", tmp_path / "run", "--out", tmp_path / "wide", "--dtype", "float32", check=True)
    wide = tensors_of(tmp_path / "wide")
    assert all(wide[name].equal(tensor.float()) for name, tensor in tensors_of(source).items())


@pytest.fixture(scope="session")
def model_with_tokenizer(scatterlm, models, tmp_path_factory):
    """A model folder with a tokenizer, and with what our configuration has no keys for."""
    folder = tmp_path_factory.mktemp("tokenizer") / "source"
    shutil.copytree(models("llama"), folder)
    text = folder.parent / "text.txt"
    text.write_text("the cat and the dog and the man in the land " * 9)
    scatterlm("tokenizer", "train", text, "--vocab-size", reference.VOCABULARY, "--out", folder / "tokenizer.json", check=True)
    edit_config(bos_token_id=1, eos_token_id=[262, 5], pad_token_id=3)(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [262, 5], "top_k": 7}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


TRAVELLING = ["tokenizer.json", "generation_config.json", "chat_template.jinja"]


def test_generation_from_an_import_uses_its_tokenizer(scatterlm, model_with_tokenizer, tmp_path):
    run, tokenizer = tmp_path / "run", model_with_tokenizer / "tokenizer.json"
    scatterlm("import", model_with_tokenizer, "--out", run, check=True)
    (run / "tokenizer.json").unlink()  # the checkpoint has its own
    model = reference.make("llama")
    ids = [int(word) for word in scatterlm("tokenize", "--tokenizer", tokenizer, input="the dog", check=True).stdout.split()]
    assert len(ids) < len("the dog")
    for _ in range(12):
        ids.append(int(reference.logits(model, torch.tensor([ids]))[0, -1].argmax()))
    expected = scatterlm("detokenize", "--tokenizer", tokenizer, input=" ".join(map(str, ids)), check=True).stdout
    printed = scatterlm("generate", run, "--prompt", "the dog", "--temperature", 0, "--max-tokens", 12, check=True).stdout
    assert printed == expected + "\n"
    (run / "step_00000000/tokenizer.json").write_text("{}")
    assert "tokenizer.json" in scatterlm("checkpoint", "verify", run).stderr


def test_a_tokenizer_of_another_kind_travels_too(scatterlm, models, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(models("llama"), source)
    texts = {"tokenizer.json": '{"model": {}}', "merges.txt": "#version: 0.2\nt h\n", "generation_config.json": '{"eos_token_id": 7}'}
    for name, text in texts.items():
        (source / name).write_text(text)
    assert "data.tokenizer stays bytes" in scatterlm("import", source, "--out", tmp_path / "run", check=True).stderr
    scatterlm("export", tmp_path / "run/step_00000000", "--out", tmp_path / "out", check=True)
    assert all((tmp_path / "out" / name).read_text() == text for name, text in texts.items())


def test_files_travel_through_training(scatterlm, model_with_tokenizer, tiny_data, tmp_path):
    run = tmp_path / "run"
    scatterlm("import", model_with_tokenizer, "--out", run, check=True)
    train = ["train", run / "config.yaml", "--init-from", run, *sets_of(tiny_data)]
    result = scatterlm(*train, "--run-dir", tmp_path / "tuned", check=True)
    assert "warning" not in result.stderr
    train_on = ["train", run / "config.yaml", *sets_of(tiny_data), "--set", "train.steps=3"]
    scatterlm(*train_on, "--run-dir", tmp_path / "tuned", check=True)  # through a resume as well
    scatterlm("export", tmp_path / "tuned", "--out", tmp_path / "out", check=True)
    for name in TRAVELLING:
        assert (tmp_path / "out" / name).read_bytes() == (model_with_tokenizer / name).read_bytes()
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, [262, 5], 3)
    assert config["max_position_embeddings"] == 64  # the run's sequences have 32
    # Another tokenizer: nothing that belongs to the old one.
    result = scatterlm(*train, "--run-dir", tmp_path / "bytes", "--set", "data.tokenizer=bytes", "--set", "data.eot_token=256", check=True)
    assert "came with another tokenizer than data.tokenizer" in result.stderr
    scatterlm("export", tmp_path / "bytes", "--out", tmp_path / "bytes_out", check=True)
    assert sorted(path.name for path in (tmp_path / "bytes_out").iterdir()) == ["config.json", "generation_config.json", "model.safetensors"]
    config = json.loads((tmp_path / "bytes_out/config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["max_position_embeddings"]) == (None, 256, 32)


def loss_of(folder, data, dtype=torch.float32):
    """Mean loss of transformers over an llm.c file in sequences of 32 tokens, the last one shorter, as `eval` computes it."""
    tokens = torch.from_numpy(np.fromfile(data, "<u2")[512:].astype("int64"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    targets = len(tokens) - 1
    whole = targets // 32 * 32
    total = 0
    for inputs, wanted in ((tokens[:whole].view(-1, 32), tokens[1:whole + 1].view(-1, 32)), (tokens[None, whole:-1], tokens[None, whole + 1:])):
        if inputs.numel():
            logits = reference.logits(model, inputs).flatten(0, 1).double()
            total += torch.nn.functional.cross_entropy(logits, wanted.flatten(), reduction="sum").item()
    return total / targets


TRAINED = {"mixtral": ["model.layers=gqa+moe*2", "model.moa=null", "model.dense=null", "model.router.routed_scaling_factor=1.5"],
           # A softmax over the chosen is one over all that is divided by the sum of the chosen.
           "mixtral, top-k first": ["model.layers=gqa+moe*2", "model.moa=null", "model.dense=null", "model.router.topk_before_softmax=true"],
           "jetmoe": ["model.layers=moa+moe*2", "model.attention=null", "model.dense=null", "model.rms_norm_eps=1.0e-6"],
           "qwen3_moe": ["model.layers=gqa+dense,gqa+moe", "model.moa=null", "model.attention.qk_norm=head"]}


@pytest.mark.parametrize("family", TRAINED)
@pytest.mark.parametrize("ranks", [1, 2])
def test_trained_model(scatterlm, tiny_config, tiny_data, runs, tmp_path, family, ranks):
    """A model trained here has the same loss under transformers; checkpoints of two ranks export like those of one."""
    sets = [part for key in TRAINED[family] for part in ("--set", key)]
    launch = ["launch", "-n", ranks] if ranks > 1 else []
    zero = ["--set", "parallel.zero=2"] if ranks > 1 else []
    scatterlm(*launch, "train", tiny_config, *sets, *zero, check=True)
    out = tmp_path / "out"
    assert f": {family.split(',')[0]}, " in scatterlm("export", runs / "tiny", "--out", out, check=True).stdout
    ours = float(scatterlm("eval", runs / "tiny", check=True).stdout.split("loss ")[1].split()[0])
    assert abs(loss_of(out, tiny_data / "val.bin") - ours) < 1e-4
    assert abs(loss_of(out, tiny_data / "val.bin", torch.bfloat16) - ours) < 2e-2


def test_plain_file(scatterlm, tiny_config, runs, tmp_path):
    scatterlm("launch", "-n", 2, "train", tiny_config, check=True)
    scatterlm("export", runs / "tiny", "--format", "safetensors", "--out", tmp_path / "w.safetensors", check=True)
    weights = safetensors_torch.load_file(tmp_path / "w.safetensors")
    namespace = {"RUN": str(runs / "tiny/step_00000020")}
    text = (ROOT / "docs/formats.md").read_text()
    exec(text.split("```python\n")[1].split("```")[0], namespace)  # the reader that the page shows
    held = {name: tensor for name, tensor in namespace["tensors"].items() if "/" not in name}
    assert held.keys() == weights.keys()
    assert all(weights[name].equal(tensor) for name, tensor in held.items())


def sets_of(data):
    """Options of a training of two steps that change nothing."""
    keys = [f"data.train={data}/train.bin", "train.steps=2", "train.sequence_length=32", "train.global_batch_tokens=128", "optim.lr=0"]
    return [part for key in keys for part in ("--set", key)]


def test_keys_that_change_no_shape_are_named(scatterlm, models, tiny_data, tmp_path):
    scatterlm("import", models("mixtral"), "--out", tmp_path / "run", check=True)
    train = ["train", tmp_path / "run/config.yaml", *sets_of(tiny_data), "--init-from", tmp_path / "run", "--run-dir", tmp_path / "tuned"]
    training_only = ["--set", "model.router.aux_loss_coef=0.02", "--set", "model.initializer_range=0.03"]
    assert "warning" not in scatterlm(*train, *training_only, "--dry-run", check=True).stderr
    changed = ["--set", "model.attention.rope_theta=20000", "--set", "model.router.norm_topk_prob=false"]
    for more in (["--dry-run"], []):
        warnings = [line for line in scatterlm(*train, *changed, *more, check=True).stderr.splitlines() if "warning" in line]
        assert len(warnings) == 1 and warnings[0].endswith(
            "run/step_00000000: its weights were trained in a model that computes something else: model.attention.rope_theta was 1000000, "
            "is 20000; model.router.norm_topk_prob was true, is false"), warnings


def test_start_from_import(scatterlm, models, tiny_data, tmp_path):
    scatterlm("import", models("mixtral"), "--out", tmp_path / "run", check=True)
    train = ["train", tmp_path / "run/config.yaml", *sets_of(tiny_data)]
    scatterlm(*train, "--init-from", tmp_path / "run", "--run-dir", tmp_path / "tuned", check=True)
    scatterlm("export", tmp_path / "tuned", "--out", tmp_path / "out", check=True)
    require_same_tensors(models("mixtral"), tmp_path / "out")  # a learning rate of 0 and a fresh optimiser change nothing
    fails = scatterlm(*train, "--resume", tmp_path / "run/step_00000000", "--run-dir", tmp_path / "other")
    assert fails.returncode == 2 and "--init-from" in fails.stderr
    # The head's own matrix is left over in a model with tied ones, experts are missing in a wider one.
    tied = [*train, "--init-from", tmp_path / "run", "--set", "model.tie_word_embeddings=true", "--run-dir", tmp_path / "tied"]
    fails = scatterlm(*tied)
    assert fails.returncode == 2 and "no tensor 'lm_head.weight'" in fails.stderr
    scatterlm(*tied, "--init-allow", "lm_head.*", check=True)
    shared = [*train, "--init-from", tmp_path / "run", "--set", "model.moe.shared_intermediate_size=8", "--run-dir", tmp_path / "shared"]
    fails = scatterlm(*shared)
    assert fails.returncode == 2 and "has no tensor 'layers.0.mlp.shared" in fails.stderr
    scatterlm(*shared, "--init-allow", "*.mlp.shared.*", check=True)


@pytest.mark.parametrize("name", ["llama", "llama_bias", "mistral_window", "llama_gelu"])
@pytest.mark.parametrize("upcycle", ["experts=5,top_k=2", "experts=8,top_k=4,split=2", "experts=33,top_k=22,split=11"])
def test_upcycling(scatterlm, models, tmp_path, name, upcycle):
    scatterlm("import", models(name), "--out", tmp_path / "run", "--upcycle", upcycle, check=True)
    ids = reference.token_ids()
    expected = reference.logits(reference.make(name), ids)
    assert (logits_of(scatterlm, tmp_path / "run", tmp_path, ids) - expected).abs().max() < 1e-4


BAD_UPCYCLING = {"experts=8": "must be experts=E,top_k=K or", "experts=8,top_k=3,split=2": "experts and top_k must be multiples of split",
                 "experts=9,top_k=2,split=2": "experts and top_k must be multiples of split",
                 "experts=8,top_k=4,split=0": "must be experts=E,top_k=K or",
                 "experts=8,top_k=4,split=4": "split=4 does not divide the width of the MLP, 'intermediate_size': 22"}


@pytest.mark.parametrize("upcycle", BAD_UPCYCLING)
def test_bad_upcycling(scatterlm, models, tmp_path, upcycle):
    result = scatterlm("import", models("llama"), "--out", tmp_path / "run", "--upcycle", upcycle)
    assert result.returncode == 2 and BAD_UPCYCLING[upcycle] in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert not (tmp_path / "run").exists()


def test_upcycled_model_trains_like_the_dense_one_at_first(scatterlm, models, tiny_data, tmp_path):
    losses = []
    for upcycle in ("", "experts=4,top_k=2", "experts=8,top_k=4,split=2"):
        run, tuned = tmp_path / f"run{upcycle}", tmp_path / f"tuned{upcycle}"
        scatterlm("import", models("llama"), "--out", run, *(["--upcycle", upcycle] if upcycle else []), check=True)
        scatterlm("train", run / "config.yaml", "--init-from", run, "--run-dir", tuned, "--set", f"data.train={tiny_data}/train.bin", "--set",
                  "train.steps=1", "--set", "train.sequence_length=32", "--set", "train.global_batch_tokens=128", "--set", "log.interval=1",
                  check=True)
        losses.append(json.loads((tuned / "metrics.jsonl").read_text().splitlines()[0])["loss"])
    assert max(losses) - min(losses) < 1e-5, losses


REFUSED = {  # what no family can hold, and the key that the message names
    "model.router.score=sigmoid": "model.router.score is sigmoid, would be softmax",
    "model.router.balance=bias": "model.router.balance is bias",
    "model.moe.bias=true": "model.moe.bias is true",
    "model.moe.activation=relu2": "model.moe.activation is relu2",
    "model.attention.qk_norm=full model.layers=gqa+dense,gqa+moe": "qwen3_moe, cannot hold this model: model.attention.qk_norm is full, would be head",
}


@pytest.mark.parametrize("changes", REFUSED)
def test_export_refuses_by_key(scatterlm, tiny_config, runs, tmp_path, changes):
    dense = [] if "dense" in changes else ["model.dense=null"]
    sets = ["model.layers=gqa+moe*2", "model.moa=null", "train.steps=1", *dense, *changes.split()]
    scatterlm("train", tiny_config, *(part for key in sets for part in ("--set", key)), check=True)
    result = scatterlm("export", runs / "tiny", "--out", tmp_path / "out")
    assert result.returncode == 2 and REFUSED[changes] in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.tmp").exists()


def edit_config(**changes):
    def apply(folder):
        config = {**json.loads((folder / "config.json").read_text()), **changes}
        (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "REMOVED"}))

    return apply


def edit_index(change):
    def apply(folder):
        path = folder / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        change(index["weight_map"])
        path.write_text(json.dumps(index))

    return apply


def drop_tensor(folder):
    tensors = safetensors_torch.load_file(folder / "model-00001-of-00005.safetensors")
    tensors["surprise.weight"] = torch.zeros(2)
    safetensors_torch.save_file(tensors, folder / "model-00001-of-00005.safetensors")


def cut_shard(folder):
    path = folder / "model-00002-of-00005.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


BAD = {
    "deepseek": (edit_config(model_type="deepseek_v2"), "latent attention"),
    "unknown": (edit_config(model_type="gpt2"), "model type 'gpt2' is not supported; known: llama"),
    "negative": (edit_config(hidden_size=-36), "'hidden_size': key 'model.hidden_size': got '-36', must be an integer from 1"),
    "layers": (edit_config(num_hidden_layers=10**9), "'num_hidden_layers' is 1000000000, must be an integer from 1 to 4096"),
    "many": (edit_config(num_hidden_layers=4096), "layers.3.input_layernorm.weight\" is missing"),
    "wide": (edit_config(hidden_size=1048576, vocab_size=16777216), "config.json asks for [16777216, 1048576]"),
    "text": (edit_config(hidden_size="36"), "'hidden_size'"),
    "list": (edit_config(hidden_size=[36]), "'hidden_size' is a list or an object"),
    "absent": (edit_config(hidden_size="REMOVED"), "'hidden_size' is missing"),
    "rope": (edit_config(rope_scaling={"rope_type": "dynamic", "factor": 2}), "rope_type' is \"dynamic\", must be one of default, linear"),
    "rope factor": (edit_config(rope_scaling={"rope_type": "linear"}), "'rope_scaling.factor' is missing"),
    "activation": (edit_config(hidden_act="tanh"), "'hidden_act' is \"tanh\""),
    "quantised": (edit_config(quantization_config={"bits": 4}), "quantised weights are not supported"),
    "not json": (lambda folder: (folder / "config.json").write_text("{"), "config.json: not valid JSON"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json: is missing"),
    "huge config": (lambda folder: (folder / "config.json").write_text(" " * (2 << 20)), "at most 1048576 are expected"),
    "no shard": (lambda folder: (folder / "model-00003-of-00005.safetensors").unlink(), "model-00003-of-00005.safetensors: is missing"),
    "cut": (cut_shard, "model-00002-of-00005.safetensors: safetensors:"),
    "left over": (drop_tensor, "\"surprise.weight\" is not in the index"),
    "folder": (edit_index(lambda names: names.update({"lm_head.weight": "../model.safetensors"})), "is not the name of a .safetensors file"),
    "wrong file": (edit_index(lambda names: names.update({"lm_head.weight": "model-00001-of-00005.safetensors"})), "has no tensor \"lm_head"),
    "unlisted": (edit_index(lambda names: names.pop("model.norm.weight")), "\"model.norm.weight\" is not in the index"),
    "tied": (edit_config(tie_word_embeddings=True), "has no place for tensor \"lm_head.weight\""),
    "untied": (edit_config(attention_bias=True), "self_attn.q_proj.bias\" is missing"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(scatterlm, models, tmp_path, name):
    """One line, exit code 2, nothing written."""
    damage, message = BAD[name]
    source = tmp_path / "source"
    shutil.copytree(models("llama", max_shard_size="30KB"), source)
    assert len(list(source.glob("*.safetensors"))) == 5
    damage(source)
    result = scatterlm("import", source, "--out", tmp_path / "run")
    assert result.returncode == 2 and message in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_existing_folders_stay(scatterlm, models, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("mine")
    result = scatterlm("import", models("llama"), "--out", tmp_path / "run")
    assert result.returncode == 2 and "already there" in result.stderr
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("target", ["nothing", "empty"])
def test_a_symbolic_link_is_no_new_folder(scatterlm, models, tmp_path, target):
    (tmp_path / "empty").mkdir()
    link = tmp_path / "run"
    link.symlink_to(tmp_path / target)
    for out in (link, f"{link}/"):
        result = scatterlm("import", models("llama"), "--out", out)
        assert result.returncode == 2 and "already there, a symbolic link" in result.stderr and result.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "run"] and link.is_symlink()
