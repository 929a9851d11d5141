"""The endpoints of a gateway, for the index and for answers that say what exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

GENERATION = (
    "/generate",
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/score",
    "/v1/rerank",
    "/v1/responses",
    "/abort_request",
)
CONTROL = ("/health", "/v1/models", "/engines")
GLOBAL = (
    "/",
    "/live",
    "/ready",
    "/liveness",
    "/readiness",
    "/status",
    "/metrics",
    "/openapi.json",
    "/ui",
    "/ui/{file}",
)
WORKERS = (
    ("GET", "/workers"),
    ("POST", "/workers"),
    ("GET", "/workers/{worker}"),
    ("DELETE", "/workers/{worker}"),
    ("GET", "/list_workers"),
    ("POST", "/add_worker"),
    ("POST", "/remove_worker"),
    ("POST", "/flush_cache"),
    ("GET", "/get_loads"),
    ("GET", "/v1/loads"),
)
"""Of the workers API, which also stands under ``/<role>``."""
FLEET = (
    "/pause",
    "/continue",
    "/flush",
    "/drain",
    "/undrain",
    "/scale",
    "/sleep",
    "/wake",
    "/update_weights/from_disk",
)
"""What a manager does to the engines of a role."""
POISON = (("GET", "/poison"), ("DELETE", "/poison"), ("DELETE", "/poison/{entry}"))
"""What is refused because engines died under it."""


def prefixes(roles: Sequence[str]) -> dict[str, str]:
    """The role behind each URL prefix; a sole role also answers without one."""
    served = {f"/{role}": role for role in roles}
    if len(roles) == 1:
        served[""] = roles[0]
    return served


def listing(roles: Sequence[str]) -> list[str]:
    """Every endpoint as ``METHOD path``, in the order a reader looks for them."""
    lines = [f"GET {path}" for path in GLOBAL]
    for role in roles:
        lines += [f"POST /{role}{path}" for path in GENERATION]
        lines += [f"GET /{role}{path}" for path in CONTROL]
        lines += [f"POST /{role}{path}" for path in FLEET]
        lines += [f"{method} /{role}{path}" for method, path in POISON]
    scopes = ["", *(f"/{role}" for role in roles)]
    return lines + [f"{method} {scope}{path}" for scope in scopes for method, path in WORKERS]


def is_openai(path: str) -> bool:
    """Whether clients of ``path`` expect an OpenAI error object."""
    return path.startswith("/v1/") or "/v1/" in path or path.endswith("/chat/completions")
