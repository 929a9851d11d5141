"""A control app that does nothing for seconds (B44): what the data plane serves does not notice."""

from __future__ import annotations

import asyncio
import threading
import time

import httpx
import pytest

from trimtab.testing import ScriptedEngine
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig

BLOCKED_S = 3.0


@pytest.mark.slow
async def test_b44_a_blocked_control_app_starves_neither_liveness_nor_requests() -> None:
    """A handler that blocks the event loop, as a bug or a scrape of a huge fleet would, stops the control app alone."""
    loop = asyncio.get_running_loop()
    with ScriptedEngine() as engine:
        role = RoleConfig("rollout", (ModelConfig("tiny", (EngineConfig(engine.authority),)),))
        async with Gateway(GatewayConfig((role,), port=0)) as gateway:
            begun, seen = threading.Event(), []

            def block() -> None:
                begun.set()
                time.sleep(BLOCKED_S)

            def ask() -> float:
                with httpx.Client(base_url=gateway.url, trust_env=False, timeout=2 * BLOCKED_S) as client:
                    while client.get("/ready").status_code != 200:
                        time.sleep(0.01)
                    loop.call_soon_threadsafe(block)
                    assert begun.wait(BLOCKED_S)
                    start = time.monotonic()
                    while time.monotonic() - start < BLOCKED_S / 2:
                        asked = time.monotonic()
                        for path in ("/live", "/ready"):
                            assert client.get(path).status_code == 200
                        assert client.post("/generate", json={"text": "a"}).json()["text"] == "ok"
                        abort = client.post("/abort_request", json={"rid": "nobody-has-this-id"})
                        assert abort.status_code == 404
                        seen.append(time.monotonic() - asked)
                    answer = client.get("/health")
                    assert answer.status_code == 200
                    return time.monotonic() - start

            health_after = await asyncio.to_thread(ask)
    # The control app was blocked all the while, and answered once it was not.
    assert health_after > BLOCKED_S * 0.9
    assert len(seen) > 5
    assert max(seen) < BLOCKED_S / 2
