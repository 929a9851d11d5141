"""The metrics of the process itself: CPU, memory, descriptors, threads."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from trimtab_gateway.control.exposition import Family

_REGISTRY = CollectorRegistry()
ProcessCollector(registry=_REGISTRY)


def process_text() -> str:
    """The families ``process_*``, under the names that every Prometheus client uses for them."""
    threads = Family("process_threads", "gauge", "Threads of the process")
    threads.add(sum(1 for _ in Path("/proc/self/task").iterdir()))
    return f"{generate_latest(_REGISTRY).decode()}{threads}\n"
