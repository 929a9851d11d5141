"""What an engine can do, found out when it registers, without doing any of it.

SGLang renames and adds endpoints between versions, and a missing one is otherwise noticed at its first use, hours into
a run. The probe reads only:

* ``GET /openapi.json`` lists every path with its methods, and the modes that a pause takes.
* Where that is switched off, ``OPTIONS`` on a path answers 405 with the methods, and 404 where there is nothing; no
  handler runs (seen on 0.5.23). Pause modes are then unknown, and only ``abort``, which every version has, is used.
* Model, server and loads are read as they will be later, so that an answer of another shape is found out now.

What cannot be found out without acting: whether ``/release_memory_occupation`` gives memory back. Without
``--enable-memory-saver`` it is bookkeeping only. ``weights_survive_release`` says what becomes of the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab_manager.engine.client import OLD_LOADS, EngineClient, Paths
from trimtab_manager.engine.errors import Malformed, MissingCapability
from trimtab_manager.engine.transport import OK
from trimtab_manager.engine.types import Loads, ModelInfo, PauseMode, ServerInfo

PAUSE = "POST /pause_generation"
CONTINUE = "POST /continue_generation"
FLUSH = "POST /flush_cache"
ABORT = "POST /abort_request"
RELEASE = "POST /release_memory_occupation"
WAKE = "POST /resume_memory_occupation"
BEGIN_UPDATE = "POST /begin_weight_update"
END_UPDATE = "POST /end_weight_update"
SET_VERSION = "POST /update_weight_version"
DISK = "POST /update_weights_from_disk"
TENSOR = "POST /update_weights_from_tensor"
DISTRIBUTED = "POST /update_weights_from_distributed"
INIT_GROUP = "POST /init_weights_update_group"
DESTROY_GROUP = "POST /destroy_weights_update_group"
CHECKSUMS = "POST /weights_checker"

ROUTING = ("POST /generate", "GET /health")
"""What an engine that only serves must have, besides saying what it serves."""

LIFECYCLE = (PAUSE, CONTINUE, FLUSH, ABORT, RELEASE, WAKE)
"""What one that is paused, put to sleep and woken must have."""

UPDATES: Mapping[str, tuple[str, ...]] = {
    "disk": (DISK,),
    "tensor": (TENSOR,),
    "distributed": (INIT_GROUP, DISTRIBUTED, DESTROY_GROUP),
    "none": (SET_VERSION,),
}
"""What each kind of weight update needs."""

_MODEL_INFO = ("GET /model_info", "GET /get_model_info")
_SERVER_INFO = ("GET /server_info", "GET /get_server_info")
_LOADS = ("GET /v1/loads", f"GET {OLD_LOADS}")
_READY = "GET /ready"
_OPTIONAL = (BEGIN_UPDATE, END_UPDATE, CHECKSUMS, _READY)

METHOD_NOT_ALLOWED = 405
PROBE_TIMEOUT_S = 20.0
ALL_MODES: frozenset[PauseMode] = frozenset({"abort", "in_place", "retract"})


@dataclass(frozen=True)
class Capabilities:
    """What one incarnation of an engine serves and is. Read anew for each incarnation.

    Attributes:
        engine: Its id.
        endpoints: ``METHOD /path`` of what it serves; of an engine that hides its list only those that we use.
        pause_modes: Modes that ``/pause_generation`` takes.
        paths: Where it says what.
        model: What it serves now.
        server: What it was started with.
        ranks: Its data-parallel ranks by its own numbers, which need not begin at 0; empty when it says nothing.
        max_running_requests: Most requests that run at once, over all ranks; None when it does not say.
        lifecycle: Whether we may pause it, put it to sleep, and update it.
    """

    engine: str
    endpoints: frozenset[str]
    pause_modes: frozenset[PauseMode]
    paths: Paths
    model: ModelInfo
    server: ServerInfo = field(repr=False)
    ranks: tuple[int, ...]
    max_running_requests: int | None
    lifecycle: bool

    def serves(self, *endpoints: str) -> bool:
        """Whether it has all of these."""
        return self.endpoints.issuperset(endpoints)

    def require(self, *endpoints: str, why: str) -> None:
        """Raises ``MissingCapability`` naming those that it lacks."""
        if missing := tuple(endpoint for endpoint in endpoints if endpoint not in self.endpoints):
            raise MissingCapability(self.engine, missing, f"{why} (it is SGLang {self.server.version})")

    def require_ranks(self, ranks: Iterable[int]) -> None:
        """Raises ``MissingCapability`` when a rank is none of the engine's: a request for it would be refused."""
        if missing := tuple(f"DP rank {rank}" for rank in ranks if rank not in self.ranks):
            owned = ", ".join(map(str, self.ranks)) or "none that it tells"
            raise MissingCapability(self.engine, missing, f"its ranks are {owned}; correct the configuration")

    @property
    def update_sessions(self) -> bool:
        """Whether tensors are taken only between ``/begin_weight_update`` and ``/end_weight_update``."""
        return self.serves(BEGIN_UPDATE, END_UPDATE)

    @property
    def weights_survive_release(self) -> bool:
        """Whether weights are the same after a release and a resume of their memory.

        They are lost with ``--enable-memory-saver`` unless ``--enable-weights-cpu-backup`` keeps a copy. Without a
        memory saver a release frees nothing, and they stay where they are.
        """
        raw = self.server.raw
        return bool(raw.get("enable_weights_cpu_backup")) or not raw.get("enable_memory_saver")

    def facts(self) -> dict[str, Any]:
        """For people and status pages, as JSON values."""
        return {
            "sglang": self.server.version,
            "incarnation": self.server.incarnation,
            "model_path": self.model.model_path,
            "weight_version": self.model.weight_version,
            "pause_modes": sorted(self.pause_modes),
            "update_sessions": self.update_sessions,
            "dp_ranks": list(self.ranks),
            "max_running_requests": self.max_running_requests,
            "lifecycle": self.lifecycle,
        }


async def probe(client: EngineClient, *, routing_only: bool = False, update_kinds: Iterable[str] = ()) -> Capabilities:
    """Finds out what the engine can do; changes nothing there. The client then uses the paths that were found.

    Args:
        client: Of the engine.
        routing_only: It is only sent requests: none of the endpoints of the lifecycle has to be there.
        update_kinds: Kinds of weight updates it must take: keys of ``UPDATES``.

    Raises:
        MissingCapability: It lacks something; the message names all of it and the way out.
        ControlError: It did not answer.
    """
    endpoints, modes = await _endpoints(client)
    model_info, server_info, loads = (_first(found, endpoints) for found in (_MODEL_INFO, _SERVER_INFO, _LOADS))
    missing = [endpoint for endpoint in ROUTING if endpoint not in endpoints]
    missing += [names[0] for names, found in ((_MODEL_INFO, model_info), (_SERVER_INFO, server_info)) if found is None]
    if not routing_only:
        missing += [endpoint for endpoint in LIFECYCLE if endpoint not in endpoints]
        missing += [] if loads else [_LOADS[0]]
        missing += [] if "abort" in modes or PAUSE not in endpoints else ["pause mode abort"]
        for kind in update_kinds:
            missing += [endpoint for endpoint in UPDATES[kind] if endpoint not in endpoints]
    if missing or model_info is None or server_info is None:
        raise MissingCapability(client.engine, tuple(missing), _advice(routing_only=routing_only))
    client.paths = Paths(
        model_info=_path(model_info),
        server_info=_path(server_info),
        loads=_path(loads or _LOADS[0]),
        ready=_path(_READY) if _READY in endpoints else None,
    )
    server = await client.server_info(timeout_s=PROBE_TIMEOUT_S)
    reported = await client.loads(timeout_s=PROBE_TIMEOUT_S) if loads else Loads((), 0.0, None)
    return Capabilities(
        engine=client.engine,
        endpoints=frozenset(endpoints),
        pause_modes=frozenset(modes),
        paths=client.paths,
        model=await client.model_info(timeout_s=PROBE_TIMEOUT_S),
        server=server,
        ranks=tuple(sorted(rank.rank for rank in reported.ranks)),
        max_running_requests=reported.max_running_requests or server.max_running_requests,
        lifecycle=not routing_only,
    )


async def _endpoints(client: EngineClient) -> tuple[set[str], set[PauseMode]]:
    reply = await client.transport.exchange("GET", "/openapi.json", timeout_s=PROBE_TIMEOUT_S)
    if reply.status == OK:
        document = client.transport.json("GET /openapi.json", reply.text)
        if isinstance(document, dict) and isinstance(document.get("paths"), dict):
            return _listed(document), _modes(document)
        raise Malformed(client.engine, "GET /openapi.json", "lists no paths", reply.text)
    return await _allowed(client), {"abort"}


def _listed(document: dict[str, Any]) -> set[str]:
    return {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}


def _modes(document: dict[str, Any]) -> set[PauseMode]:
    """The modes in the schema of a pause's body; servers without the field know the one that all have."""
    schemas = document.get("components", {}).get("schemas", {})
    mode = schemas.get("PauseGenerationReqInput", {}).get("properties", {}).get("mode", {})
    named = set(mode.get("enum", ())) & ALL_MODES
    return cast("set[PauseMode]", named) or {"abort"}


async def _allowed(client: EngineClient) -> set[str]:
    wanted = {*ROUTING, *LIFECYCLE, *_OPTIONAL, *_MODEL_INFO, *_SERVER_INFO, *_LOADS}
    wanted.update(endpoint for endpoints in UPDATES.values() for endpoint in endpoints)
    found: set[str] = set()
    for path in sorted({_path(endpoint) for endpoint in wanted}):
        reply = await client.transport.exchange("OPTIONS", path, timeout_s=PROBE_TIMEOUT_S)
        if reply.status == METHOD_NOT_ALLOWED:
            allow = next((value for name, value in reply.headers.items() if name.lower() == "allow"), "")
            found.update(f"{method.strip().upper()} {path}" for method in allow.split(","))
    return found


def _first(candidates: tuple[str, ...], endpoints: set[str]) -> str | None:
    return next((candidate for candidate in candidates if candidate in endpoints), None)


def _path(endpoint: str) -> str:
    return endpoint.partition(" ")[2]


def _advice(*, routing_only: bool) -> str:
    if routing_only:
        return "is it an SGLang server?"
    return "use another version of SGLang, or attach the engine without lifecycle rights (`lifecycle = false`)"
