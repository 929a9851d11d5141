"""``GET /openapi.json`` against what is served: nothing is missing or invented, and answers are as described."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.gateway.control.conftest import one_role
from trimtab._core import AddressRules
from trimtab.testing import ScriptedEngine
from trimtab_gateway import EngineConfig, Gateway, GatewayConfig, ModelConfig, RoleConfig
from trimtab_gateway.control import create_app
from trimtab_gateway.control.workers import Workers
from trimtab_gateway.publisher import Publisher, Watch
from trimtab_gateway.snapshot import Fleet, ServedRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.control.conftest import Start

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES_PER_OPERATION = 6
NOBODY = Workers((), rules=AddressRules(), engine_key=None, engine_ca=None, is_own=lambda _: False)
ENDINGS = ("close", "fail", "failUpdate")
"""Operations after which a pool grants nothing any more; they come last."""


async def test_every_path_of_the_control_app_is_described_and_the_reverse(serve: Start) -> None:
    """Also the index lists what is described for roles and for the whole gateway."""
    served = await serve(one_role())
    document = await served.json("/openapi.json")
    described = {
        (path, method): operation for path, item in document["paths"].items() for method, operation in item.items()
    }
    by_control = {
        (path, method)
        for (path, method), operation in described.items()
        if method != "parameters" and operation.get("x-served-by") == "control"
    }
    app = create_app(
        [ServedRole("{role}", {}, None), ServedRole("other", {}, None)],
        served.gateway.statistics,
        Watch(Publisher(lambda: Fleet(()))),
        NOBODY,
        lambda: None,
    )
    routes = {
        (resource.canonical, route.method.lower())
        for route in app.router.routes()
        if (resource := route.resource) is not None and route.method != "HEAD"
    }
    assert by_control == {(path, method) for path, method in routes if not path.startswith("/other/")}
    listed = {line.replace("/rollout/", "/{role}/") for line in (await served.json("/"))["endpoints"]}
    assert listed == {
        f"{method.upper()} {path}"
        for path, method in described
        if method != "parameters" and not path.startswith("/v1/router/")
    }


async def test_every_described_path_of_the_data_plane_exists(serve: Start) -> None:
    """What it does not serve itself would be the control app's 404."""
    served = await serve(one_role())
    document = await served.json("/openapi.json")
    for path, item in document["paths"].items():
        for method in item.keys() - {"parameters"}:
            concrete = (
                path.replace("{role}", "rollout")
                .replace("{model}", "tiny")
                .replace("{worker}", "x")
                .replace("{entry}", "x")
                .replace("{file}", "app.js")
            )
            answer = await served.client.request("OPTIONS", concrete)
            if path.startswith("/v1/router/"):
                assert answer.status_code == 405, path
            else:
                assert answer.status_code == 204, path
            assert method.upper() in answer.headers["allow"].split(", "), path


class Running:
    """A gateway with one working engine, in a thread of its own: the test's thread belongs to the generator."""

    def __init__(self) -> None:
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    async def _run(self) -> None:
        with ScriptedEngine() as engine:
            role = RoleConfig("rollout", (ModelConfig("tiny", (EngineConfig(engine.authority),)),))
            async with Gateway(GatewayConfig((role,), port=0)) as gateway:
                self.url = gateway.url
                self._up.set()
                await self._end.wait()

    def __enter__(self) -> str:
        self._thread.start()
        assert self._up.wait(30)
        return self.url

    def __exit__(self, *_error: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def running() -> Iterator[str]:
    """Base URL of a gateway with one working engine."""
    with ExitStack() as stack:
        yield stack.enter_context(Running())


def known_names(case: Any) -> None:
    """Most cases are about the pool there is; names that are unknown are tried enough by what is left."""
    parameters = case.path_parameters
    if hash(str(case.body)) % 4:
        parameters |= {key: {"role": "rollout", "model": "tiny"}[key] for key in parameters.keys() & {"role", "model"}}


@pytest.mark.slow
def test_every_answer_is_as_described(running: str) -> None:
    """Whatever is sent, within and beyond the description: a described status, type and shape, and never a 500."""
    document = httpx.get(f"{running}/openapi.json", trust_env=False).json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.base_url = running
    # A description that cannot be read raises here.
    operations: list[Any] = [result.ok() for result in schema.get_all_operations()]  # type: ignore[union-attr]
    operations.sort(key=lambda operation: operation.definition.raw["operationId"] in ENDINGS)
    assert len(operations) > 30
    seen: set[int] = set()
    for operation in operations:
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

            def check(case: Any) -> None:
                known_names(case)
                if "wait_ms" in (case.query or {}):
                    case.query["wait_ms"] = 1
                answer = case.call(timeout=20)
                assert answer.status_code != 500, answer.text
                seen.add(answer.status_code)
                case.validate_response(answer, checks=CHECKS)

            strategy = operation.as_strategy(generation_mode=mode)
            bounded = settings(
                max_examples=EXAMPLES_PER_OPERATION,
                phases=[Phase.generate],
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            # What takes no input has no wrong one.
            with suppress(Unsatisfiable):
                bounded(given(case=strategy)(check))()
    # The generator reached behind the front door.
    assert seen >= {200, 400, 404, 409, 422}
