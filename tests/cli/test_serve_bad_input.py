"""``trimtab serve`` with bad input: exit code 2, one message with value and rule, no traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.processes import run

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = {
    "": "nothing to serve: give --engine ADDRESS[=CAPACITY] at least once, --config FILE, or --empty",
    "--empty --engine 10.0.0.1:1": "--empty stands alone",
    "--empty --config absent.toml": "--empty stands alone",
    "--engine http://10.0.0.1:30000/v1": "a path is not allowed",
    "--engine http://user:pw@10.0.0.1:30000": "user information is not allowed",
    "--engine 10.0.0.1:99999": "1 to 65535",
    "--engine 10.0.0.1:x": "'10.0.0.1:x'",
    "--engine 10.0.0.1:30000=0": "capacity 0 is refused",
    "--engine 10.0.0.1:30000=nan": "capacity NaN is refused",
    "--engine 10.0.0.1:30000=-2": "capacity -2 is refused",
    "--engine 10.0.0.1:30000=many": "'many' is refused: it must be a number",
    "--engine 10.0.0.1:1 --engine http://10.0.0.1:1/": "has the same address http://10.0.0.1:1",
    "--engine 10.0.0.1:1 --role Rollout": "--role: role name 'Rollout' is refused",
    "--engine 10.0.0.1:1 --port 70000": "--port: 70000 is refused: it must be between 0 and 65535",
    "--engine 10.0.0.1:1 --port x": "'x' is not a valid integer",
    "--engine 10.0.0.1:1 --host 0.0.0.0": "--host: '0.0.0.0' is refused: other machines could reach it",
    "--engine 10.0.0.1:1 --host nowhere": "--host: 'nowhere' is refused: it must be an IP address or 'localhost'",
    "--config absent.toml": "absent.toml: cannot be read: No such file or directory",
    "--config absent.toml --engine 10.0.0.1:1": "--engine cannot be combined with --config",
    "--config absent.toml --role a": "--role cannot be combined with --config",
    "--engin 10.0.0.1:1": "No such option",
}


@pytest.mark.parametrize(("flags", "message"), FLAGS.items(), ids=FLAGS)
async def test_a_bad_flag_is_named(flags: str, message: str) -> None:
    """Flag, value, rule."""
    result = await run("serve", *flags.split())
    assert result.code == 2, result.err
    assert message in " ".join(result.err.split()).replace('"10.0.0.1:x"', "'10.0.0.1:x'")
    assert "Traceback" not in result.err
    assert result.out == ""


async def test_an_unknown_key_of_a_file_gets_its_nearest_match(tmp_path: Path) -> None:
    """File, key path, match."""
    path = tmp_path / "trimtab.toml"
    path.write_text("[gateway]\nconect_timeout_s = 1\n")
    result = await run("serve", "--config", str(path))
    assert result.code == 2
    assert f"{path}: gateway.conect_timeout_s: unknown key; did you mean 'connect_timeout_s'?" in result.err
