"""``trimtab status``: the table, the JSON, and what it says when there is no gateway."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import pytest

from tests.cli.processes import run, serving
from tests.support.scripts import one
from tests.support.waiting import wait_until
from trimtab import RouterAdmin
from trimtab.cli import fetch

if TYPE_CHECKING:
    from tests.support.lab import Lab

NOBODY = "127.0.0.1:9"


async def test_the_table_shows_pools_and_engines(lab: Lab) -> None:
    """Address, readiness, pool, each engine with its state and load; proxies of the environment are ignored."""
    engine = await lab.engine(one())
    async with serving("--model", "tiny", "--engine", f"{engine.authority}=8", "--engine", NOBODY) as served:
        await served.logged("model is ready")
        result = await run("status", "--url", served.url, env={"http_proxy": "http://127.0.0.1:9"})
    assert (result.code, result.err) == (0, "")
    assert f"at {served.url}: ready" in result.out
    assert "requests: 0 open, " in result.out
    assert "rollout/tiny  ready  0 outstanding, capacity 8 of 9 eligible, 0 sessions" in result.out
    rows = {line.split()[0]: line.split() for line in result.out.splitlines() if line.strip()}
    assert rows[engine.authority][1:5] == ["up", "0", "8", "0.00"]
    assert rows[NOBODY][1:5] == ["unproven", "0", "1", "0.00"]


async def test_json_is_the_status_document() -> None:
    """One object on stdout, also when no engine answers."""
    async with serving("--engine", NOBODY) as served:
        result = await run("status", "--url", served.url.removeprefix("http://"), "--json")
    assert result.code == 0
    document = json.loads(result.out)
    assert document["ready"] is False
    assert document["roles"]["rollout"]["models"]["default"]["engines"][0]["health"] == "unproven"


async def test_an_update_is_shown(lab: Lab) -> None:
    """Version, update, fences and who waits, in the table and in the JSON."""
    engine = await lab.engine(one())
    async with serving("--model", "tiny", "--engine", engine.authority) as served:
        await served.logged("model is ready")

        def begin() -> None:
            with RouterAdmin(served.url) as admin:
                admin.publish("u-1", 1)
                admin.attach_owner("train", 1)
                admin.fence("train", "sender_pause")
                admin.begin_update("u-2", to=2)

        await asyncio.to_thread(begin)
        table = (await run("status", "--url", served.url)).out
        model = json.loads((await run("status", "--url", served.url, "--json")).out)["roles"]["rollout"]["models"][
            "tiny"
        ]
    assert "drained, weights version 1, update u-2 to 2 is drained, engines paused" in table
    assert "owner train is fenced: sender_pause; 0 outstanding" in table
    assert (model["pool_state"], model["update"]["update_id"], model["weight_version"]) == ("drained", "u-2", 1)
    assert {owner["owner"]: owner["fences"] for owner in model["owners"]} == {"default": [], "train": ["sender_pause"]}


async def test_nothing_listening_is_a_clear_error() -> None:
    """Exit code 1 and how to start one."""
    result = await run("status", "--url", f"http://{NOBODY}")
    assert result.code == 1
    guidance = "start a gateway with 'trimtab up' or 'trimtab serve', or say where it is with --url"
    assert result.err == f"Error: nothing listens on http://{NOBODY}; {guidance}\n"


async def test_another_server_is_not_taken_for_a_gateway(lab: Lab) -> None:
    """An engine's port instead of the gateway's is the likely mistake."""
    engine = await lab.engine(one(b"not json"))
    result = await run("status", "--url", f"http://{engine.authority}")
    assert result.code == 1
    assert "is it a trimtab gateway?" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("body", [b"{}", b'{"ready": true}', b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"])
@pytest.mark.parametrize("flags", [(), ("--json",)])
async def test_a_document_of_another_kind_is_no_status(lab: Lab, body: bytes, flags: tuple[str, ...]) -> None:
    """Some other server answers every path with JSON, however strange."""
    server = await lab.engine(one(body))
    result = await run("status", "--url", f"http://{server.authority}", *flags)
    assert (result.code, result.out) == (1, "")
    assert "is it a trimtab gateway?" in result.err
    assert "Traceback" not in result.err


async def test_a_host_that_is_no_name_is_a_clear_error() -> None:
    """The resolver refuses it with an error of its own kind."""
    result = await run("status", "--url", "http://a..b:80")
    assert result.code == 1
    assert result.err.startswith("Error: http://a..b:80 cannot be asked: ")


async def test_a_server_that_closes_without_an_answer_is_a_clear_error() -> None:
    """No traceback for any way a socket can end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def close_one() -> bool:
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                return False
            return True

        asking = asyncio.create_task(run("status", "--url", url))
        await wait_until(close_one, "the connection of 'trimtab status'")
        result = await asking
    assert result.code == 1
    assert result.err.startswith(f"Error: {url} cannot be asked: ")
    assert "Traceback" not in result.err


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n"])
async def test_an_answer_that_never_ends_is_given_up(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no progress."""
    monkeypatch.setattr(fetch, "TIMEOUT_S", 0.3)
    lost = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(head)
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        lost.set()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(click.ClickException, match=r"is it a trimtab gateway|cannot be asked"):
            await asyncio.to_thread(fetch.fetch_json, f"http://127.0.0.1:{port}", "/status")
        await asyncio.wait_for(lost.wait(), 10)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1:8080",
        "http://",
        "http://h:99999",
        "http://h/x",
        "http://u:p@h",
        "http://[::1",
        "http://a b:80",
        "http://a\x01:80",
    ],
)
async def test_a_bad_url_is_a_usage_error(url: str) -> None:
    """Exit code 2 with the form that is expected."""
    result = await run("status", "--url", url)
    assert result.code == 2
    assert "is refused" in result.err
    assert "Traceback" not in result.err
