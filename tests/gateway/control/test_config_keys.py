"""Keys: where they are looked for, which source wins, and that their text is never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.control.conftest import NOBODY, one_role
from trimtab_gateway import ConfigError, EngineConfig, Gateway, config_from_flags, load_config
from trimtab_gateway.config import keys_of_environment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.control.conftest import Start

SECRET = "s3cr3t-that-nobody-may-see"


def key_file(directory: Path, text: str = f"{SECRET}\n") -> Path:
    """A file that holds a key."""
    path = directory / "key"
    path.write_text(text)
    return path


def toml(directory: Path, gateway: str) -> Path:
    """A configuration file with ``gateway`` in its first table."""
    path = directory / "trimtab.toml"
    path.write_text(f'[gateway]\n{gateway}\n[roles.rollout.models.tiny]\nengines = ["{NOBODY}"]\n')
    return path


@pytest.mark.parametrize("key", ["admin_key", "engine_key"])
def test_a_key_is_read_from_the_file_that_is_named(tmp_path: Path, key: str) -> None:
    """In the configuration file or by a flag; white space around it does not count; it wins over the environment."""
    path = key_file(tmp_path)
    from_file = load_config(toml(tmp_path, f'{key}_file = "{path}"'), **{key: "of-the-environment"})
    flags: dict[str, Any] = {key: "of-the-environment", f"{key}_file": path}
    from_flags = config_from_flags([NOBODY], **flags)
    assert getattr(from_file, key) == getattr(from_flags, key) == SECRET


def test_a_key_of_the_environment_counts_when_no_file_is_named(tmp_path: Path) -> None:
    """An empty variable is one that is not set."""
    found = keys_of_environment({"TRIMTAB_ADMIN_KEY": SECRET, "TRIMTAB_ENGINE_KEY": "", "OTHER": "x"})
    assert found == {"admin_key": SECRET}
    assert load_config(toml(tmp_path, ""), **found).admin_key == SECRET


@pytest.mark.parametrize("key", ["admin_key", "engine_key"])
def test_a_key_in_the_configuration_file_is_refused(tmp_path: Path, key: str) -> None:
    """Such a file is shared and committed; the message says where the key belongs, and not what it is."""
    with pytest.raises(ConfigError) as caught:
        load_config(toml(tmp_path, f'{key} = "{SECRET}"'))
    assert f"gateway.{key}: does not belong into this file" in str(caught.value)
    assert f"{key}_file" in str(caught.value)
    assert f"TRIMTAB_{key.upper()}" in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["", "\n", f"{SECRET} two", f"{SECRET}é"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: str) -> None:
    """The message names the place, and not the text."""
    with pytest.raises(ConfigError) as caught:
        load_config(toml(tmp_path, f'admin_key_file = "{key_file(tmp_path, text)}"'))
    assert "gateway.admin_key_file: the key is refused" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A flag is named as it is typed."""
    with pytest.raises(ConfigError, match=r"--admin-key-file: .*absent cannot be read: No such file"):
        config_from_flags([NOBODY], admin_key_file=tmp_path / "absent")
    (tmp_path / "binary").write_bytes(SECRET.encode() + b"\xff")
    with pytest.raises(ConfigError, match="it is not text") as caught:
        config_from_flags([NOBODY], admin_key_file=tmp_path / "binary")
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None
    with pytest.raises(ConfigError, match="must be the path of a file"):
        load_config(toml(tmp_path, "engine_key_file = 3"))


async def test_keys_are_shown_nowhere(serve: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Not in a representation, a document, a metric or a log line."""
    caplog.set_level("DEBUG")
    config = one_role(EngineConfig(NOBODY), admin_key=SECRET, engine_key=SECRET)
    assert SECRET not in repr(config)
    assert SECRET not in repr(Gateway(config).config)
    served = await serve(config)
    for path in ("/", "/status", "/metrics", "/engines", "/health", "/ready", "/v1/router/pools"):
        answer = await served.get(path)
        assert SECRET not in answer.text + repr(answer.headers)
    assert SECRET not in caplog.text


async def test_the_admin_key_opens_the_lease_api(serve: Start) -> None:
    """With a key configured, 401 without it and 200 with it."""
    served = await serve(one_role(EngineConfig(NOBODY), admin_key=SECRET))
    assert (await served.get("/v1/router/pools")).status_code == 401
    answer = await served.client.get("/v1/router/pools", headers={"authorization": f"Bearer {SECRET}"})
    assert answer.status_code == 200
