"""The HTTP clients that people use, each as one function: a request in, what came over the wire out.

None of them may help: no retry, no redirect, no decoding of a body.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import httpx
import requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Call:
    """One request; a body is JSON unless ``headers`` say otherwise."""

    path: str
    body: bytes | None = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})


@dataclass(frozen=True)
class Answer:
    """Status, headers by lower-case name (of equal names the values joined), and the body as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


async def with_aiohttp(call: Call, base: str) -> Answer:
    """The client of slime, AReaL and most trainers."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    content = None if call.body is None else io.BytesIO(call.body)
    async with (
        aiohttp.ClientSession(auto_decompress=False, timeout=timeout) as session,
        session.request(
            call.method, base + call.path, data=content, headers=call.headers, allow_redirects=False
        ) as answer,
    ):
        return Answer(answer.status, lowered(answer.headers), await answer.read())


async def with_httpx(call: Call, base: str) -> Answer:
    """The client under the OpenAI SDK."""
    async with (
        httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client,
        client.stream(call.method, base + call.path, content=call.body, headers=call.headers) as answer,
    ):
        body = b"".join([part async for part in answer.aiter_raw()])
        return Answer(answer.status_code, lowered(answer.headers), body)


async def with_requests(call: Call, base: str) -> Answer:
    """The client of scripts; it blocks, so it gets a thread."""

    def blocking() -> Answer:
        with requests.Session() as session:
            session.trust_env = False
            with session.request(
                call.method,
                base + call.path,
                data=call.body,
                headers=call.headers,
                stream=True,
                timeout=TIMEOUT_S,
                allow_redirects=False,
            ) as answer:
                body = b"".join(answer.raw.stream(65536, decode_content=False))
                return Answer(answer.status_code, lowered(answer.headers), body)

    return await asyncio.to_thread(blocking)


async def with_curl(call: Call, base: str) -> Answer:
    """The command line. It asks with ``Expect: 100-continue`` before it sends a megabyte."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "request").write_bytes(call.body or b"")
        command = ["curl", "--silent", "--show-error", "--noproxy", "*", "--max-time", str(TIMEOUT_S), base + call.path]
        command += ["--dump-header", str(folder / "head"), "--output", str(folder / "body")]
        command += ["--head"] if call.method == "HEAD" else ["--request", call.method]
        for header, value in call.headers.items():
            command += ["--header", f"{header}: {value}"]
        if call.body is not None:
            command += ["--data-binary", f"@{folder / 'request'}"]
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        # The last head is the final one: an interim "100 Continue" comes before it.
        final = (folder / "head").read_bytes().decode("latin-1").strip().split("\r\n\r\n")[-1]
        status_line, *lines = final.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = b"" if call.method == "HEAD" else (folder / "body").read_bytes()
        return Answer(int(status_line.split()[1]), headers, body)


def lowered(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by lower-case name."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
    return found


CLIENTS: dict[str, Callable[[Call, str], Awaitable[Answer]]] = {
    "aiohttp": with_aiohttp,
    "httpx": with_httpx,
    "requests": with_requests,
    "curl": with_curl,
}
