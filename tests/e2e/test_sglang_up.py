"""``trimtab up`` with two real SGLang engines, as the example in the documentation says it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.cli.processes import Serving, run, up
from tests.support.sglang_server import REPOSITORY, START_DEADLINE_S
from tests.support.sglang_traffic import greedy, in_background
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.sglang_server import Installation

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(3 * START_DEADLINE_S)]

EXAMPLE = REPOSITORY / "docs" / "examples" / "two-sglang-cpu.toml"
MARK = "TRIMTAB_TEST_MARK"
E0, E1 = "tiny/0", "tiny/1"
STOP_DEADLINE_S = 90.0
UPDATE_DEADLINE_S = 120.0
PROBE = [3, 1, 4, 1, 5]


@dataclass(frozen=True)
class Answer:
    """One generation, as the gateway and the engine label it."""

    status: int
    engine: str | None
    version: str | None
    says: str | None = None
    is_whole: bool = False
    tokens: tuple[int, ...] = ()


@dataclass
class Load:
    """Sessions that ask the same thing again and again, and every answer that they got."""

    http: aiohttp.ClientSession
    url: str
    answers: list[Answer] = field(default_factory=list)

    async def ask(self, session: str) -> Answer:
        """One generation."""
        headers = {"x-trimtab-session": session, "x-trimtab-wait": "60"}
        async with self.http.post(f"{self.url}/generate", json=greedy(PROBE, 8), headers=headers) as answer:
            document = await answer.json()
            engine = answer.headers.get("x-trimtab-backend")
            version = answer.headers.get("x-trimtab-weight-version")
            if answer.status != 200:
                return Answer(answer.status, engine, version)
            meta = document["meta_info"]
            is_whole = meta["finish_reason"]["type"] == "length"
            return Answer(200, engine, version, meta["weight_version"], is_whole, tuple(document["output_ids"] or ()))

    async def session(self, name: str) -> None:
        """Ask until cancelled; each turn may begin a new session, so that newcomers get requests, too."""
        for turn in range(1_000_000):
            self.answers.append(await self.ask(f"{name}-{turn // 4}"))

    async def engines(self) -> dict[str, dict[str, Any]]:
        """What discovery says, by engine."""
        async with self.http.get(f"{self.url}/engines") as answer:
            document = await answer.json()
        return {engine["engine_id"]: engine for engine in document["models"]["tiny"]["engines"]}


def example(installation: Installation, tmp_path: Path) -> Path:
    """The documented file, with the paths of this checkout and logs of this test."""
    text = EXAMPLE.read_text("utf-8")
    for relative, absolute in (
        (".venvs/sglang/bin/python", installation.python),
        (".cache/models/llama-s0", installation.models[0]),
        ("tests/sglang_cpu/shim", REPOSITORY / "tests" / "sglang_cpu" / "shim"),
    ):
        assert text.count(f'"{relative}"') == 1, relative
        text = text.replace(f'"{relative}"', f'"{absolute}"')
    path = tmp_path / "trimtab.toml"
    path.write_text(text.replace("[manager]\n", f'[manager]\nlog_dir = "{tmp_path}/logs"\n'), "utf-8")
    return path


def processes(tmp_path: Path) -> dict[int, list[str]]:
    """Every living process of the engines of this test, and its command line.

    Marked ones and their descendants: a server's parts write their names over their environment.
    """
    mark = f"{MARK}={tmp_path}".encode()
    parents, marked = {}, set()
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z":
                    parents[int(folder.name)] = int(fields[1])
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    marked.add(int(folder.name))

    def belongs(pid: int) -> bool:
        return pid in marked or (pid in parents and belongs(parents[pid]))

    found = {}
    for pid in filter(belongs, parents):
        with suppress(OSError):
            found[pid] = (Path("/proc") / str(pid) / "cmdline").read_text().split("\0")
    return found


def scheduler_of(tmp_path: Path, url: str) -> int:
    """The scheduler process of the engine that listens on the port of ``url``."""
    port = url.rpartition(":")[2]
    found = processes(tmp_path)
    mains = {pid for pid, command in found.items() if "sglang.launch_server" in command and port in command}
    (scheduler,) = [
        pid for pid, command in found.items() if command[0].startswith("sglang::scheduler") and parent_of(pid) in mains
    ]
    return scheduler


def parent_of(pid: int) -> int:
    """Its parent."""
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


async def test_up_over_two_real_engines(sglang_installation: Installation, tmp_path: Path) -> None:
    """Ready, a generation, an update under load, a scheduler that is killed and replaced, and Ctrl-C."""
    env = {MARK: str(tmp_path)}
    async with up(example(sglang_installation, tmp_path), env=env) as served:
        await served.said("ready", START_DEADLINE_S)
        timeout = aiohttp.ClientTimeout(total=60)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            await through_its_life(served, Load(http, served.url), sglang_installation, tmp_path)
        engines = processes(tmp_path).keys() - {served.pid}
        assert len(engines) >= 2 * 3, "guards, servers and schedulers"
        served.signal(signal.SIGINT)
        ended = await served.ended(STOP_DEADLINE_S)
        assert ended.code == 0, ended.err
        assert processes(tmp_path) == {}
        assert [pid for pid in engines if (Path("/proc") / str(pid)).exists()] == []


async def through_its_life(served: Serving, load: Load, installation: Installation, tmp_path: Path) -> None:
    """What a user does with it between the start and Ctrl-C."""
    first = await load.ask("first")
    assert (first.status, first.is_whole) == (200, True)
    async with in_background(*(load.session(f"s{number}") for number in range(4))):
        await wait_until(lambda: {each.engine for each in load.answers} == {E0, E1}, "both serve", deadline_s=60)
        assert {each.tokens for each in load.answers if each.is_whole} == {first.tokens}

        began = len(load.answers)
        command = ("update", "--from-disk", str(installation.models[1]), "--version", "1", "--json")
        updated = await run(*command, "--url", served.url, deadline_s=UPDATE_DEADLINE_S)
        assert updated.code == 0, updated.err
        result = json.loads(updated.out)
        assert result["weight_version"] == 1
        assert [(row["engine"], row["status"]) for row in result["engines"]] == [(E0, "ok"), (E1, "ok")]
        after = len(load.answers)
        await wait_until(
            lambda: {each.engine for each in load.answers[after + 4 :]} == {E0, E1}, "both serve", deadline_s=60
        )
        assert [each for each in load.answers if each.status != 200] == []
        assert {each.version for each in load.answers[after + 4 :]} == {"1"}
        assert {(each.version, each.says) for each in load.answers[began:] if each.version is not None} <= {("1", "1")}
        (tokens,) = {each.tokens for each in load.answers[after + 4 :] if each.is_whole}
        assert tokens != first.tokens

        address = (await load.engines())[E1]["base_url"]
        os.kill(scheduler_of(tmp_path, address), signal.SIGKILL)
        killed = len(load.answers)
        await replaced(load, E1, address)
        back = len(load.answers)
        await wait_until(
            lambda: E1 in {each.engine for each in load.answers[back + 4 :]}, "the new one serves", deadline_s=60
        )
        served_since = [each for each in load.answers[killed:] if each.status == 200]
        assert {(each.version, each.says) for each in served_since} == {("1", "1")}
        assert {each.tokens for each in served_since if each.is_whole} == {tokens}
        failed = [each for each in load.answers[killed:] if each.status != 200]
        assert len(failed) <= 4 + 4, failed  # what ran there, and what was sent before anybody could know


async def replaced(load: Load, engine: str, address: str) -> None:
    """Wait until an engine is published at another address, and ready."""
    ends = asyncio.get_running_loop().time() + START_DEADLINE_S
    while asyncio.get_running_loop().time() < ends:
        found = (await load.engines()).get(engine)
        if found is not None and found["base_url"] != address and found["state"] == "ready":
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"{engine} was not replaced within {START_DEADLINE_S} s: {await load.engines()}")
