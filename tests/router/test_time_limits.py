"""A default of a library must not cut a generation short (B15): whoever builds an HTTP client is listed here."""

from __future__ import annotations

import ast
from pathlib import Path

import httpx
import pytest

from trimtab.direct_settings import Settings

ROOT = Path(__file__).parents[2]
SOURCES = ("python/trimtab", "gateway/src", "manager/src")
BUILDERS = {"Client", "AsyncClient", "ClientSession", "Session", "HTTPConnection", "HTTPSConnection", "urlopen"}
GENERATIONS = {"python/trimtab/cli/demo/run.py", "python/trimtab/direct.py", "python/trimtab/direct_sync.py"}
"""Their requests take as long as they take."""
CONTROL = {
    "gateway/src/trimtab_gateway/control/workers/engines.py",
    "manager/src/trimtab_manager/launch/startup.py",
    "python/trimtab/cli/fetch.py",
    "python/trimtab/discovery_feed.py",
    "python/trimtab/transport.py",
}
"""Their calls answer within a known time, and set it themselves, call by call."""


def builders(path: Path) -> list[ast.Call]:
    """The calls in a file that build an HTTP client."""
    calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    names = [call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "") for call in calls]
    return [call for call, name in zip(calls, names, strict=True) if name in BUILDERS]


def test_b15_every_http_client_is_known() -> None:
    """B15: a new one has to say here what it carries."""
    files = [path for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if builders(path)}
    assert found == GENERATIONS | CONTROL


@pytest.mark.parametrize("path", sorted(GENERATIONS))
def test_b15_whatever_carries_generations_says_that_it_has_no_limit(path: str) -> None:
    """B15: either it names the limit, which is none, or it takes the options that are tested below."""
    for call in builders(ROOT / path):
        source = ast.unparse(call)
        assert "ClientTimeout(total=None)" in source or "engine_options()" in source, source


def test_b15_a_direct_client_only_limits_connecting() -> None:
    """B15: no limit for reading, writing or a place in its pool, which is as large as need be."""
    nothing = dict.fromkeys(("sender", "key", "client_key", "engine_key", "fallback", "retry"))
    options = Settings("http://127.0.0.1:1/rollout", owner="train", connect_timeout_s=5.0, **nothing).engine_options()
    assert options["timeout"] == httpx.Timeout(None, connect=5.0)
    assert options["limits"].max_connections is None
