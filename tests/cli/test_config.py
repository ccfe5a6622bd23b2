"""`scatterlm config show` and `config keys`."""


def test_show_prints_a_configuration_that_reads_back(scatterlm, tiny_config, tmp_path):
    shown = scatterlm("config", "show", tiny_config, "--set", "train.seed=7", "--set", "train.seed=8", check=True).stdout
    assert "  seed: 8 " in shown and "  num_hidden_layers: 2 " in shown and '  name: "tiny" ' in shown
    (tmp_path / "resolved.yaml").write_text(shown)
    assert scatterlm("config", "show", tmp_path / "resolved.yaml", check=True).stdout == shown


def test_set_before_the_file(scatterlm, tiny_config):
    assert "  seed: 7 " in scatterlm("config", "show", "--set", "train.seed=7", tiny_config, check=True).stdout


def test_every_shown_key_is_in_the_list_of_keys(scatterlm, tiny_config):
    keys = scatterlm("config", "keys", check=True).stdout
    for line in scatterlm("config", "show", tiny_config, check=True).stdout.splitlines():
        name, value = line.split("#")[0].strip().split(":", 1)
        if value:
            assert f".{name} = " in keys


def test_errors_quote_the_line_or_the_option(scatterlm, tiny_config):
    result = scatterlm("config", "show", tiny_config, "--set", "train.stepz=7")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith("--set train.stepz=7: unknown key 'train.stepz', did you mean 'train.steps'?\n")
    tiny_config.write_text(tiny_config.read_text() + "logs: {interval: 1}\n")
    line = len(tiny_config.read_text().splitlines())
    result = scatterlm("config", "show", tiny_config)
    assert result.stderr.endswith(f"{tiny_config}:{line}: unknown key 'logs', did you mean 'log'?\n")
