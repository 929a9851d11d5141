"""The control calls of SGLang, one method each.

A method sends one request and nothing else: no retries, no waiting for a state, no knowledge of earlier calls. Several
of these calls kill a server when they come at the wrong time (releasing memory while something runs, resuming what is
not released, a malformed tensor), and none of them has an id that would make it safe to send twice. ``SGLangEngine``
knows when they may be sent; ``retry`` knows which may be repeated.

Every policy flag is sent, whatever its default: SGLang's default for a change of the version label, for instance, is to
abort every request that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from trimtab.errors import InvalidRequest
from trimtab_manager.engine import wire
from trimtab_manager.engine.errors import Malformed, Refused
from trimtab_manager.engine.transport import OK, Transport
from trimtab_manager.engine.types import Loads, ModelInfo, PauseMode, ServerInfo

T = TypeVar("T")

HEALTH_TIMEOUT_S = 25.0
"""SGLang's own time-out for ``/health`` is 20 s; an answer in which it says so is worth waiting for."""


@dataclass(frozen=True)
class Paths:
    """Where this version of SGLang says what every version says somewhere. The capability probe finds out.

    Attributes:
        model_info: ``/model_info``, or ``/get_model_info`` on older servers.
        server_info: ``/server_info``, or ``/get_server_info``.
        loads: ``/v1/loads``, or ``/get_load``.
        ready: ``/ready``; None where only ``/health`` says so.
    """

    model_info: str = "/model_info"
    server_info: str = "/server_info"
    loads: str = "/v1/loads"
    ready: str | None = "/ready"


OLD_LOADS = "/get_load"


class EngineClient:
    """Control of one engine over HTTP. Errors are those of ``Transport.succeed`` unless a method says otherwise.

    Args:
        url: Base URL of the engine.
        engine: Its id, for messages; the URL while it has none.
        api_key: Its (admin) key, if it wants one.
        timeout_s: Deadline of a call that names none of its own.
        paths: Where it says what; those of current servers until a probe has found others.
        static: Whether its weights never change: then every call that would change them, or their label, is refused
            with ``InvalidRequest`` and not sent.
    """

    def __init__(
        self,
        url: str,
        *,
        engine: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        paths: Paths | None = None,
        static: bool = False,
    ) -> None:
        self.transport = Transport(url, engine=engine or url, api_key=api_key)
        self.timeout_s = timeout_s
        self.paths = paths or Paths()
        self.static = static

    @property
    def url(self) -> str:
        """Base URL, without a trailing slash."""
        return self.transport.url

    @property
    def engine(self) -> str:
        """The engine's id, as errors name it."""
        return self.transport.engine

    async def close(self) -> None:
        """Ends its session. May be called twice."""
        await self.transport.close()

    # What it says.

    async def model_info(self, *, timeout_s: float | None = None) -> ModelInfo:
        """Path, name and weight version, as they are now."""
        return await self._read(self.paths.model_info, wire.model_info, timeout_s)

    async def server_info(self, *, timeout_s: float | None = None) -> ServerInfo:
        """Values of the start-up. Answered by the scheduler: a hung one never does."""
        return await self._read(self.paths.server_info, wire.server_info, timeout_s)

    async def loads(self, *, timeout_s: float | None = None) -> Loads:
        """What runs and waits, as the schedulers last published it: look at ``age_s``."""
        parse = wire.old_loads if self.paths.loads == OLD_LOADS else wire.loads
        return await self._read(self.paths.loads, parse, timeout_s)

    async def ready(self, *, timeout_s: float | None = None) -> bool:
        """Whether it would take a request now: not while it starts, is paused, or failed its last health check."""
        if self.paths.ready is None:
            return await self.health()
        reply = await self.transport.exchange("GET", self.paths.ready, timeout_s=self._limit(timeout_s))
        return reply.status == OK

    async def health(self, *, timeout_s: float = HEALTH_TIMEOUT_S) -> bool:
        """Whether it generated a token just now. Takes a second; 20 when it is paused or hangs, and then says no."""
        reply = await self.transport.exchange("GET", "/health", timeout_s=timeout_s)
        return reply.status == OK

    # Requests.

    async def pause(self, mode: PauseMode, *, timeout_s: float | None = None) -> None:
        """Stops generating; new requests wait inside the engine, silently.

        ``abort`` returns once everything that ran has ended as aborted; the other modes freeze it. Repeatable.
        """
        await self._post("/pause_generation", {"mode": mode}, timeout_s)

    async def resume(self, *, timeout_s: float | None = None) -> None:
        """Ends a pause. Harmless on an engine that is not paused."""
        await self._post("/continue_generation", {"torch_empty_cache": True}, timeout_s)

    async def abort(self, rid: str, *, timeout_s: float | None = None) -> None:
        """Aborts every request whose id *begins* with ``rid``. An id that nobody has is no error."""
        if not rid:
            raise ValueError("rid must not be empty: an empty prefix is every request; use abort_all")
        await self._post("/abort_request", {"rid": rid, "abort_all": False}, timeout_s)

    async def abort_all(self, *, timeout_s: float | None = None) -> None:
        """Aborts every request that the scheduler has; those at a pause gate it cannot reach."""
        await self._post("/abort_request", {"rid": "", "abort_all": True}, timeout_s)

    async def flush(self, *, wait_s: float = 0.0, timeout_s: float | None = None) -> None:
        """Empties the prefix cache. Refused (400) while anything runs or waits, after ``wait_s`` on servers that wait.

        A wait does not count a paused queue as idle, an immediate flush does.
        """
        limit = self._limit(timeout_s) + wait_s
        await self.transport.succeed("POST", "/flush_cache", timeout_s=limit, query={"timeout": f"{wait_s:g}"})

    # Memory. Neither call may be sent twice: see ``SGLangEngine``.

    async def release(self, tags: Sequence[str], *, timeout_s: float | None = None) -> None:
        """Gives memory back. **Kills the server** when anything runs, and on a GPU when a tag is released already."""
        await self._post("/release_memory_occupation", {"tags": _named(tags)}, timeout_s)

    async def wake(self, tags: Sequence[str], *, timeout_s: float | None = None) -> None:
        """Takes memory back. **Kills the server** when one of the tags is not released."""
        await self._post("/resume_memory_occupation", {"tags": _named(tags)}, timeout_s)

    # Weights. An answer of 400 does not prove that nothing changed: read back.

    async def update_from_disk(
        self,
        path: str,
        version: str,
        *,
        flush: bool,
        abort_all_requests: bool = False,
        load_format: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Loads the weights at ``path`` on the engine's host. Unless it is paused, waits for everything that runs."""
        body = {
            "model_path": path,
            "weight_version": version,
            "load_format": load_format,
            "flush_cache": flush,
            "abort_all_requests": abort_all_requests,
            "is_async": False,
            "keep_pause": False,
            "torch_empty_cache": False,
            "recapture_cuda_graph": False,
            "token_step": 0,
        }
        await self._change("/update_weights_from_disk", body, timeout_s)

    async def begin_weight_update(self, *, timeout_s: float | None = None) -> None:
        """Opens the session in which newer servers take tensors. Refused while one is open."""
        await self._change("/begin_weight_update", {"selector": "all"}, timeout_s)

    async def end_weight_update(self, *, timeout_s: float | None = None) -> None:
        """Closes it. Refused when none is open."""
        await self._change("/end_weight_update", {}, timeout_s)

    async def update_from_tensor(
        self,
        serialized_named_tensors: Sequence[str],
        version: str | None,
        *,
        flush: bool,
        abort_all_requests: bool = False,
        load_format: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Replaces tensors by those in the message, one base64 text per tensor-parallel rank.

        A wrong shape, format or encoding **kills the server**; a name that it does not know passes unnoticed. Without a
        version the label stays: that of an update of several calls belongs to the last one.
        """
        body = {
            "serialized_named_tensors": list(serialized_named_tensors),
            "weight_version": version,
            "load_format": load_format,
            "flush_cache": flush,
            "abort_all_requests": abort_all_requests,
            "selector": "all",
            "torch_empty_cache": False,
        }
        await self._change("/update_weights_from_tensor", body, timeout_s)

    async def init_group(
        self,
        *,
        master_address: str,
        master_port: int,
        rank_offset: int,
        world_size: int,
        group_name: str,
        backend: str,
        timeout_s: float | None = None,
    ) -> None:
        """Joins a process group; answers when all of its ``world_size`` ranks have."""
        body = {
            "master_address": master_address,
            "master_port": master_port,
            "rank_offset": rank_offset,
            "world_size": world_size,
            "group_name": group_name,
            "backend": backend,
        }
        await self._change("/init_weights_update_group", body, timeout_s)

    async def update_from_distributed(
        self,
        *,
        names: Sequence[str],
        dtypes: Sequence[str],
        shapes: Sequence[Sequence[int]],
        group_name: str,
        version: str | None,
        flush: bool,
        abort_all_requests: bool = False,
        load_format: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Receives tensors that rank 0 of the group broadcasts in this order. Without a version the label stays."""
        body = {
            "names": list(names),
            "dtypes": list(dtypes),
            "shapes": [list(shape) for shape in shapes],
            "group_name": group_name,
            "weight_version": version,
            "load_format": load_format,
            "flush_cache": flush,
            "abort_all_requests": abort_all_requests,
            "selector": "all",
            "torch_empty_cache": False,
        }
        await self._change("/update_weights_from_distributed", body, timeout_s)

    async def destroy_group(self, group_name: str, *, timeout_s: float | None = None) -> None:
        """Leaves a process group. Refused when it is in none of that name."""
        await self._change("/destroy_weights_update_group", {"group_name": group_name}, timeout_s)

    async def update_version(
        self, version: str, *, abort_all_requests: bool = False, timeout_s: float | None = None
    ) -> None:
        """Changes the label only. What runs goes on unless ``abort_all_requests``, which is SGLang's default."""
        body = {"new_version": version, "abort_all_requests": abort_all_requests}
        await self._change("/update_weight_version", body, timeout_s)

    async def checksums(self, *, timeout_s: float | None = None) -> Mapping[str, Any]:
        """Checksums of the weights: per tensor and rank (``ranks``), and of the engine (``per_engine_checksum``)."""
        body = await self._post_json("/weights_checker", {"action": "checksum"}, timeout_s)
        if not isinstance(body, dict):
            raise Malformed(self.engine, "POST /weights_checker", "was answered with no object", str(body))
        return body

    async def get_weights_by_name(
        self, name: str, *, truncate_size: int = 100, timeout_s: float | None = None
    ) -> list[Any]:
        """The first numbers of a tensor, by its Hugging Face name. Only some architectures can (400 otherwise)."""
        body = await self._post_json("/get_weights_by_name", {"name": name, "truncate_size": truncate_size}, timeout_s)
        if not isinstance(body, list):
            raise Malformed(self.engine, "POST /get_weights_by_name", "was answered with no list", str(body))
        return body

    # Plumbing.

    def _limit(self, timeout_s: float | None) -> float:
        return self.timeout_s if timeout_s is None else timeout_s

    async def _read(self, path: str, parse: Callable[[Any], T], timeout_s: float | None) -> T:
        call = f"GET {path}"
        text = await self.transport.succeed("GET", path, timeout_s=self._limit(timeout_s))
        body = self.transport.json(call, text)
        try:
            return parse(body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"lacks what SGLang says there: {type(error).__name__}: {error}"
            raise Malformed(self.engine, call, problem, text) from error

    async def _post(self, path: str, body: Mapping[str, Any], timeout_s: float | None) -> str:
        return await self.transport.succeed("POST", path, body, timeout_s=self._limit(timeout_s))

    async def _post_json(self, path: str, body: Mapping[str, Any], timeout_s: float | None) -> Any:
        return self.transport.json(f"POST {path}", await self._post(path, body, timeout_s))

    async def _change(self, path: str, body: Mapping[str, Any], timeout_s: float | None) -> None:
        """A call whose answer has ``success``; false under a status of 200 is a refusal all the same."""
        call = f"POST {path}"
        if self.static:
            raise InvalidRequest(f"engine {self.engine} serves a static model: {call} is refused, and was not sent")
        text = await self._post(path, body, timeout_s)
        answer = self.transport.json(call, text)
        if not isinstance(answer, dict) or answer.get("success") is not True:
            raise Refused(self.engine, call, OK, text)


def _named(tags: Sequence[str]) -> list[str]:
    if not tags:
        raise ValueError("tags must not be empty: to SGLang no tag means every tag")
    return list(tags)
