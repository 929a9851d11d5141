"""Configuration files: what a TOML file becomes, and what each mistake in one is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trimtab_gateway import ConfigError, EngineConfig, GatewayConfig, ModelConfig, RoleConfig, load_config

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[gateway]
port = 0
max_body_bytes = 67_108_864
idle_timeout_s = 1.5

[roles.rollout]
default_model = "policy"

[roles.rollout.models.policy]
max_concurrent = 512
engines = ["10.0.0.1:30000", { url = "http://10.0.0.2:30000", capacity = 4, id = "big" }]

[roles.rollout.models."Qwen/Qwen3-0.6B"]
session_ttl_s = 600
engines = ["10.0.0.3:30000"]

[roles.genrm.models.judge]
engines = ["10.0.0.4:30000"]
"""


def written(directory: Path, text: str) -> Path:
    """A configuration file with ``text``."""
    path = directory / "trimtab.toml"
    path.write_text(text)
    return path


def test_a_whole_file_becomes_one_configuration(tmp_path: Path) -> None:
    """Every table, both forms of an engine, quoted model names, defaults for the rest."""
    policy = (EngineConfig("10.0.0.1:30000"), EngineConfig("10.0.0.2:30000", 4, "big"))
    rollout = (
        ModelConfig("policy", policy, max_concurrent=512),
        ModelConfig("Qwen/Qwen3-0.6B", (EngineConfig("10.0.0.3:30000"),), session_ttl_s=600),
    )
    judge = ModelConfig("judge", (EngineConfig("10.0.0.4:30000"),))
    expected = GatewayConfig(
        (RoleConfig("rollout", rollout, default_model="policy"), RoleConfig("genrm", (judge,))),
        port=0,
        max_body_bytes=64 * 2**20,
        idle_timeout_s=1.5,
    )
    assert load_config(written(tmp_path, WHOLE)) == expected


def test_an_override_replaces_the_key_of_the_file(tmp_path: Path) -> None:
    """A flag given next to a file wins, and is checked as the file's value is."""
    path = written(tmp_path, WHOLE)
    assert load_config(path, port=9000).port == 9000
    with pytest.raises(ConfigError, match="port: 70000 is refused"):
        load_config(path, port=70000)


MODEL = "[roles.rollout.models.tiny]\n"
MISTAKES = {
    "[gateway]\nmax_body_byte = 1": "gateway.max_body_byte: unknown key; did you mean 'max_body_bytes'?",
    "[gatway]\nport = 1": "gatway: unknown key; did you mean 'gateway'?",
    "[gateway]\nroles = 1": "gateway.roles: unknown key",
    "[gateway]\nzzz = 1": "gateway.zzz: unknown key; known keys: abort_grace_s, admin_key_file",
    "[roles.rollout]\ndefault_modle = 'a'": "roles.rollout.default_modle: unknown key; did you mean 'default_model'?",
    f"{MODEL}engine = []": "roles.rollout.models.tiny.engine: unknown key; did you mean 'engines'?",
    f"{MODEL}engines = [{{ url = 'h:1', capcity = 2 }}]": (
        "roles.rollout.models.tiny.engines[0].capcity: unknown key; did you mean 'capacity'?"
    ),
    f"{MODEL}engines = [{{ url = 'h:1', capacity = 0 }}]": "roles.rollout.models.tiny.engines[0].capacity: ",
    f"{MODEL}engines = [{{ url = 'h:1', capacity = nan }}]": "roles.rollout.models.tiny.engines[0].capacity: ",
    f"{MODEL}engines = [{{ url = 'h:1', capacity = -3 }}]": "roles.rollout.models.tiny.engines[0].capacity: ",
    f"{MODEL}engines = [{{ capacity = 1 }}]": "roles.rollout.models.tiny.engines[0].url: is missing",
    f"{MODEL}engines = ['h:1', 'h:1/v1']": "roles.rollout.models.tiny.engines[1].url: ",
    f"{MODEL}engines = ['h:1', 'http://H:1']": "roles.rollout.models.tiny.engines[1].url: http://h:1 is refused",
    f"{MODEL}engines = [1]": "roles.rollout.models.tiny.engines[0]: 1 is refused: it must be",
    f"{MODEL}engines = 'h:1'": "roles.rollout.models.tiny.engines: 'h:1' is refused: it must be a list",
    "[roles.a.models]\n'Qwen/Qwen2.5' = {engines = ['h:1']}\nb = {engines = [{url = 'h:2', id = 'h:1'}]}": (
        "roles.a.models.b.engines[0].id: 'h:1' is refused: models.\"Qwen/Qwen2.5\".engines[0] has the same id"
    ),
    MODEL: "roles.rollout.models.tiny.engines: is missing: it must be a list",
    '[roles.rollout.models."a/b"]\nx = 1': 'roles.rollout.models."a/b".x: unknown key',
    "[roles.Rollout.models.tiny]\nengines = ['h:1']": "roles.Rollout: role name 'Rollout' is refused",
    "[roles.rollout]": "roles.rollout.models: the role has no model",
    "roles = 3": "roles: 3 is refused: it must be a table",
    "[roles]\nrollout = []": "roles.rollout: [] is refused: it must be a table",
    "gateway = 1": "gateway: 1 is refused: it must be a table",
    "": "roles: nothing to serve",
    f"[gateway]\nhost = '0.0.0.0'\n{MODEL}engines = ['h:1']": "gateway.host: '0.0.0.0' is refused",
    f"[gateway]\nport = '80'\n{MODEL}engines = ['h:1']": "gateway.port: '80' is refused: it must be a whole number",
    "[roles.a]\n[roles.a]": "is not valid TOML: Cannot declare ('roles', 'a') twice",
    "[roles": "is not valid TOML: ",
    f"port = {'1' * 5000}": "is not valid TOML: ",
    f"port = {'[' * 5000}": "is not valid TOML: ",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items(), ids=range(len(MISTAKES)))
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    """File, key path, value, rule; an unknown key also gets its nearest match."""
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: {message}")


URL = "'http://user:secret@h:1'"
MISPLACED = [URL, f"[[{URL}]]", f"[{{ url = [{URL}] }}]", f"[{{ url = 'h:1', capacity = {URL} }}]"]


@pytest.mark.parametrize("engines", MISPLACED)
def test_a_password_stays_out_of_the_message_wherever_its_address_stands(tmp_path: Path, engines: str) -> None:
    """A value of the wrong shape is shown, without it."""
    with pytest.raises(ConfigError, match=r"http://\*\*\*@h:1' ?\]? is refused") as caught:
        load_config(written(tmp_path, f"{MODEL}engines = {engines}"))
    assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Absent, a directory, or not text."""
    with pytest.raises(ConfigError, match=r"absent\.toml: cannot be read: No such file"):
        load_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)
    path = tmp_path / "binary.toml"
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match=r"binary\.toml: is not UTF-8 text \(byte 5\)"):
        load_config(path)
