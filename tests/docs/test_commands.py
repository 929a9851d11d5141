"""The commands and configuration files of the pages are ones that trimtab takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest

from tests.docs.pages import PAGES, blocks, commands
from trimtab.cli.commands import trimtab
from trimtab_gateway.config import load_config

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_have_options_that_exist(page: str) -> None:
    """A renamed option has to be renamed where users copy it from."""
    for line in commands(page):
        _, name, *_ = line.split()
        command = trimtab.get_command(click.Context(trimtab), name)
        assert command is not None, line
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r" (--[a-z-]+)", line.partition("#")[0])) <= known, line


@pytest.mark.parametrize("number", range(len(blocks("docs/configuration.md", "toml"))))
def test_configuration_files_are_valid(number: int, tmp_path: Path) -> None:
    """Each block is a whole file, or the part of one that its section is about: what it leaves to others is added."""
    text = blocks("docs/configuration.md", "toml")[number]
    secret = tmp_path / "secret"
    secret.write_text("a-key-of-this-test\n")
    secret.chmod(0o600)
    text = re.sub(r'"/(run|etc)/[\w./-]+"', f'"{secret}"', text)
    if "route_keys" in text:
        text += "models = { math-teacher = { engines = [] }, code-teacher = { engines = [] } }\n"
    file = tmp_path / "trimtab.toml"
    file.write_text(text)
    assert load_config(file).roles
