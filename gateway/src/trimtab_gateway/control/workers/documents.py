"""The shapes of sglang-router's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab_gateway.control.workers.registration import DEFAULT_COST, DEFAULT_PRIORITY
from trimtab_gateway.snapshot import engine_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab_gateway.control.workers.fleet import Worker

_ALIVE = frozenset({"up", "suspect"})


def worker_document(worker: Worker) -> dict[str, Any]:
    """One worker; ``role``, ``capacity`` and ``status`` are ours, the rest sglang-router's. ``load`` is in requests."""
    backend, registration = worker.backend, worker.registration
    return {
        "id": worker.id,
        "url": worker.url,
        "model_id": worker.target.model,
        "role": worker.target.role,
        "priority": DEFAULT_PRIORITY if registration is None else registration.priority,
        "cost": DEFAULT_COST if registration is None else registration.cost,
        "capacity": backend.capacity,
        "worker_type": "regular",
        "is_healthy": backend.health in _ALIVE,
        "status": engine_state(backend),
        "load": backend.outstanding,
        "connection_mode": "HTTP",
        "metadata": {} if registration is None else dict(registration.labels),
        "disable_health_check": False,
    }


def list_document(workers: Sequence[Worker]) -> dict[str, Any]:
    """``GET /workers``."""
    return {
        "workers": [worker_document(worker) for worker in workers],
        "total": len(workers),
        "stats": {"prefill_count": 0, "decode_count": 0, "regular_count": len(workers)},
    }


def accepted_document(worker: Worker, prefix: str) -> dict[str, Any]:
    """``POST /workers``."""
    return {
        "status": "accepted",
        "worker_id": worker.id,
        "url": worker.url,
        "location": f"{prefix}/workers/{worker.id}",
        "message": "Worker registered; it gets requests once a probe has reached it",
    }


def removal_document(worker: Worker) -> dict[str, Any]:
    """``DELETE /workers/<id>``."""
    running = worker.backend.outstanding
    message = "Worker removed" if running == 0 else f"Worker drains and is removed after {running} running requests"
    return {"status": "accepted", "worker_id": worker.id, "message": message}


def urls_document(workers: Sequence[Worker]) -> dict[str, Any]:
    """``POST /add_worker`` and ``POST /remove_worker``: running requests by URL."""
    return {"status": "success", "worker_urls": {worker.url: worker.backend.outstanding for worker in workers}}
