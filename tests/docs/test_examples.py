"""The example configurations: each is valid, and the one that needs nothing is run as a newcomer runs it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.cli.processes import run, up

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.mark.parametrize("name", ["three-roles", "two-sglang-cpu", "ray"])
async def test_an_example_is_valid(name: str) -> None:
    """As ``trimtab check`` says."""
    checked = await run("check", str(FOLDER / f"{name}.toml"))
    assert (checked.code, checked.err) == (0, "")


@pytest.mark.slow
async def test_three_roles_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every role answers in its own way, and the policy takes new weights."""
    monkeypatch.delenv("TRIMTAB_CLIENT_KEY", raising=False)
    async with (
        up(FOLDER / "three-roles.toml") as served,
        httpx.AsyncClient(base_url=served.url, trust_env=False, timeout=60) as client,
    ):
        await served.said("ready")
        limit = {"sampling_params": {"max_new_tokens": 4}}
        assert (await client.post("/rollout/generate", json={"text": "2+2=", **limit})).status_code == 200
        judged = await client.post("/genrm/generate", json={"messages": [{"role": "user", "content": "Is 4 right?"}]})
        assert list(judged.json()) == ["response"]
        for body, engine in (({}, "general/0"), ({"route_key": "openai/gsm8k"}, "math/0")):
            taught = await client.post("/teacher/generate", json={"text": "2+2=", **limit, **body})
            assert taught.headers["x-trimtab-backend"] == engine
        updated = await run("update", "--from-disk", "sim://weights/1", "--version", "1", "--url", served.url)
        assert (updated.code, "published version 1" in updated.out) == (0, True), updated.err
        refused = await run(
            "update", "--from-disk", "sim://judge/1", "--version", "1", "--role", "genrm", "--url", served.url
        )
        assert refused.code == 1
        assert "static" in refused.err
