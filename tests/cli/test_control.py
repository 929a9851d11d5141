"""``trimtab update``, ``drain`` and ``scale`` over a gateway whose manager writes down what it is asked."""

from __future__ import annotations

import json

import pytest

from tests.cli.processes import run
from tests.gateway.control.conftest import one_role
from tests.support.recorder import Recorder
from trimtab.errors import UpdateInProgress
from trimtab.fleet import EngineResult
from trimtab_gateway import Gateway

FINE = EngineResult("policy/0", "ok", 0.5, state="ready")
BAD = EngineResult("policy/1", "timeout", 0.5, error="policy/1 did not answer within 5 s", state="dead")


async def test_update_says_what_became_of_every_engine() -> None:
    """Exit code 0, a row per engine, the published version; the manager got path, version and policy."""
    manager = Recorder(FINE)
    async with Gateway(one_role()) as gateway:
        gateway.manage(manager)
        ended = await run(
            "update", "--from-disk", "/w/7", "--version", "7", "--cache", "keep", "--model", "m", "--url", gateway.url
        )
    assert (ended.code, ended.err) == (0, "")
    assert "policy/0" in ended.out
    assert "published version 7" in ended.out
    arguments = {"path": "/w/7", "version": 7, "flush": "keep"}
    assert manager.calls == [("update_from_disk", "rollout", "m", arguments)]


async def test_what_did_not_work_everywhere_is_exit_code_1() -> None:
    """With the row that says why, for people and as JSON."""
    async with Gateway(one_role()) as gateway:
        gateway.manage(Recorder(FINE, BAD))
        shown = await run("drain", "--url", gateway.url)
        as_json = await run("drain", "policy/1", "--json", "--url", gateway.url)
    assert (shown.code, as_json.code) == (1, 1)
    assert "did not answer within 5 s" in shown.out
    assert [row["status"] for row in json.loads(as_json.out)["engines"]] == ["ok", "timeout"]


async def test_drain_names_the_engine_and_undo_takes_it_back() -> None:
    """Without a name it is all of them."""
    manager = Recorder(FINE)
    async with Gateway(one_role()) as gateway:
        gateway.manage(manager)
        for arguments in (["policy/0"], ["policy/0", "--undo"], []):
            assert (await run("drain", *arguments, "--url", gateway.url)).code == 0
    assert [(call[0], call[3]) for call in manager.calls] == [
        ("drain", {"engine": "policy/0"}),
        ("undrain", {"engine": "policy/0"}),
        ("drain", {"engine": None}),
    ]


async def test_scale_says_how_many_of_which_group() -> None:
    """Without a group it is the model's only one; a number that is none is not asked for."""
    manager = Recorder(FINE)
    async with Gateway(one_role()) as gateway:
        gateway.manage(manager)
        done = await run("scale", "2", "--url", gateway.url)
        to_none = await run("scale", "0", "--group", "big", "--url", gateway.url)
        refused = await run("scale", "--url", gateway.url, "--", "-1")
    assert (done.code, to_none.code, refused.code) == (0, 0, 2)
    assert "scale of rollout/policy: done" in done.out
    assert [(call[0], call[3]) for call in manager.calls] == [
        ("scale", {"replicas": 2, "group": None}),
        ("scale", {"replicas": 0, "group": "big"}),
    ]


@pytest.mark.parametrize("managed", [True, False])
async def test_a_refusal_is_one_message(*, managed: bool) -> None:
    """An update that runs already, or nobody who could update."""
    async with Gateway(one_role()) as gateway:
        if managed:
            gateway.manage(Recorder(error=UpdateInProgress("u-1 runs for 3 s")))
        ended = await run("update", "--from-disk", "/w", "--version", "1", "--url", gateway.url)
    assert ended.code == 1
    assert ("u-1 runs for 3 s" if managed else "trimtab up") in ended.err


async def test_the_admin_key_comes_from_the_environment() -> None:
    """It is never on a command line."""
    async with Gateway(one_role(admin_key="adm")) as gateway:
        gateway.manage(Recorder(FINE))
        without = await run("drain", "--url", gateway.url)
        with_key = await run("drain", "--url", gateway.url, env={"TRIMTAB_ADMIN_KEY": "adm"})
    assert (without.code, with_key.code) == (1, 0)
    assert "admin key" in without.err
