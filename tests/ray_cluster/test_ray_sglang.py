"""A real SGLang server on a Ray node; Ray and SGLang are in environments of their own."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.e2e.test_sglang_launch import KEY, request, scheduler_of
from tests.ray_cluster.test_ray_nodes import all_gone
from tests.support.sglang_server import START_DEADLINE_S, session_members

if TYPE_CHECKING:
    from tests.ray_cluster.conftest import MakeLauncher
    from tests.support.sglang_server import Installation

pytestmark = [pytest.mark.ray, pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(START_DEADLINE_S + 120)]


async def test_real_sglang_runs_on_a_node(make_launcher: MakeLauncher, sglang_installation: Installation) -> None:
    """It comes up with its key from a file and generates; when its scheduler dies, the handle says so, and all goes."""
    launcher = make_launcher(python=str(sglang_installation.python), stop_grace_s=0)
    engine = await launcher.launch(request(sglang_installation.models[0], api_key=KEY))
    body = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}}
    headers = {"authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession() as client, client.post(f"{engine.url}/generate", json=body) as refusal:
        assert refusal.status == 401
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.post(f"{engine.url}/generate", json=body) as answer,
    ):
        assert (await answer.json())["meta_info"]["completion_tokens"] == 4
    assert KEY not in f"{engine.facts} {engine.log_tail(10_000)}"
    pid = engine.facts["pids"][0]
    members = session_members(pid)
    os.kill(scheduler_of(pid), signal.SIGKILL)
    ended = await asyncio.wait_for(engine.exited(), 30.0)
    assert ended.what == "main"
    await engine.stop(0)
    await all_gone(members)
