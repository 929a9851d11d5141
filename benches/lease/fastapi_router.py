"""The router to compare with: the same calls of the lease API on FastAPI, uvicorn, uvloop, httptools and orjson.

It is written as one would for speed: models checked by pydantic, answers encoded by orjson without a second model,
plain ``async`` handlers, no middleware, no access log. Run in its own venv as
``python -m benches.lease.fastapi_router SOCKET BACKEND_PORT...``: prints its port and serves, there and on the Unix
socket, until stdin ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Annotated, Any

import orjson
import uvicorn  # type: ignore[import-not-found]  # only in the bench's own venv
from fastapi import FastAPI, Response  # type: ignore[import-not-found]  # only in the bench's own venv
from pydantic import BaseModel, ConfigDict, Field, model_validator

from benches.lease.peer_state import Backend, RefusalError, State

POOL = "/v1/router/pools/rollout/tiny"
INCARNATION = "fastapi"

Number = Annotated[int, Field(ge=0)]


class Strict(BaseModel):
    """Unknown members are refused."""

    model_config = ConfigDict(extra="forbid")


class AttachBody(Strict):
    """Of ``POST senders``."""

    sender: str
    incarnation: str
    owner: str


class AcquireBody(Strict):
    """Of ``POST leases``."""

    sender: str
    incarnation: str
    seq: Number
    session: str | None = None
    expect_version: Number | None = None
    settled: list[tuple[Number, Number]] = []


class SettleBody(Strict):
    """Of ``POST leases/{id}/settle``."""

    outcome: str
    output_tokens: Number | None = None


class SettleOneBody(SettleBody):
    """A settlement in ``POST leases:batch``."""

    lease_id: str


class OperationBody(Strict):
    """One of ``POST leases:batch``: either."""

    acquire: AcquireBody | None = None
    settle: SettleOneBody | None = None

    @model_validator(mode="after")
    def _is_one(self) -> OperationBody:
        if (self.acquire is None) == (self.settle is None):
            raise ValueError("either acquire or settle")
        return self


class BatchBody(Strict):
    """Of ``POST leases:batch``."""

    requests: Annotated[list[OperationBody], Field(max_length=1024)]


def reply(content: dict[str, Any], status: int = 200) -> Any:
    """A JSON answer."""
    content["incarnation"] = INCARNATION
    return Response(orjson.dumps(content), status, media_type="application/json")


def error(refusal: RefusalError) -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {"code": refusal.code, "message": str(refusal), "retryable": False}}


async def refused(_request: object, refusal: RefusalError) -> Any:
    """The answer to what is refused."""
    return reply(error(refusal), refusal.status)


def create_app(state: State) -> Any:
    """The application over one pool."""

    def grant(body: AcquireBody) -> dict[str, Any]:
        lease, replayed = state.acquire(
            body.sender,
            body.incarnation,
            body.seq,
            session=body.session,
            expect_version=body.expect_version,
            settled=body.settled,
        )
        authority = lease.backend.id
        return {
            "lease_id": lease.id,
            "backend": authority,
            "authority": authority,
            "url": f"http://{authority}",
            "weight_version": None,
            "sticky": lease.sticky,
            "replayed": replayed,
            "reason": "sticky" if lease.sticky else "new",
            "waited_ms": 0,
        }

    def end(lease_id: str, body: SettleBody) -> dict[str, Any]:
        outcome, already = state.settle(lease_id, body.outcome)
        return {"outcome": outcome, "already": already}

    def carry_out(operation: OperationBody) -> dict[str, Any]:
        try:
            if operation.acquire is not None:
                return {"status": 200, "body": grant(operation.acquire)}
            assert operation.settle is not None, "checked by the model"
            return {"status": 200, "body": end(operation.settle.lease_id, operation.settle)}
        except RefusalError as refusal:
            return {"status": refusal.status, "body": error(refusal)}

    async def attach(body: AttachBody) -> Any:
        state.attach(body.sender, body.incarnation, body.owner)
        return reply({"version": None, "state": "serving"})

    async def acquire(body: AcquireBody) -> Any:
        return reply({**grant(body), "pool_gen": 0})

    async def settle(lease_id: str, body: SettleBody) -> Any:
        return reply({**end(lease_id, body), "pool_gen": 0})

    async def batch(body: BatchBody) -> Any:
        return reply({"results": [carry_out(operation) for operation in body.requests], "pool_gen": 0})

    app = FastAPI(openapi_url=None)
    app.add_api_route(f"{POOL}/senders", attach, methods=["POST"])
    app.add_api_route(f"{POOL}/leases", acquire, methods=["POST"])
    app.add_api_route(f"{POOL}/leases/{{lease_id}}/settle", settle, methods=["POST"])
    app.add_api_route(f"{POOL}/leases:batch", batch, methods=["POST"])
    app.add_exception_handler(RefusalError, refused)
    return app


async def serve(path: str, ports: list[str]) -> None:
    """Serve until stdin ends."""
    state = State([Backend(f"127.0.0.1:{port}", 1.0) for port in ports])
    config = uvicorn.Config(create_app(state), loop="uvloop", http="httptools", access_log=False, log_level="error")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener, socket.socket(socket.AF_UNIX) as local:
        local.bind(path)
        local.listen(1024)
        print(listener.getsockname()[1], flush=True)
        serving = asyncio.ensure_future(server.serve(sockets=[listener, local]))
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving


if __name__ == "__main__":
    import uvloop

    uvloop.install()
    asyncio.run(serve(sys.argv[1], sys.argv[2:]))
