"""How each router is started: one core, sessions where it has them, quiet logs, and nothing else changed.

trimtab, haproxy, smg and sglang-router keep a session by its header and give a new one to the engine with the fewest
open requests; vllm-router counts sessions; nginx has no sessions with ``least_conn``. Only trimtab and haproxy weigh
capacities.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from benches.gateway import nginx
from benches.gateway.tools import install, program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SLOW_TO_REGISTER = "sglang-router"
"""It takes more than a minute to take in 1,000 engines."""


@dataclass(frozen=True)
class Place:
    """Where a router runs: its port, one for its own metrics, and a folder for its files."""

    port: int
    metrics_port: int
    folder: Path


Command: TypeAlias = "Callable[[Place, Sequence[int]], list[str]]"
"""From a place and the ports of the engines to a command line."""


def _trimtab(place: Place, engines: Sequence[int]) -> list[str]:
    config = place.folder / "trimtab.toml"
    addresses = ", ".join(f'"127.0.0.1:{engine}"' for engine in engines)
    config.write_text(
        f"[gateway]\nport = {place.port}\nworker_threads = 1\n\n[roles.rollout.models.tiny]\nengines = [{addresses}]\n"
    )
    return [str(Path(sys.executable).with_name("trimtab")), "serve", "--config", str(config)]


def _urls(engines: Sequence[int]) -> list[str]:
    return [f"http://127.0.0.1:{engine}" for engine in engines]


def _smg(place: Place, engines: Sequence[int]) -> list[str]:
    policy = ["--policy", "manual", "--assignment-mode", "min_load", "--disable-tokenizer-autoload"]
    return _rust_peer([str(install("smg") / "smg"), "launch"], place, policy, engines)


def _sglang_router(place: Place, engines: Sequence[int]) -> list[str]:
    policy = ["--policy", "manual", "--assignment-mode", "min_load"]
    return _rust_peer([str(install("sglang-router") / "sglang-router"), "launch"], place, policy, engines)


def _vllm_router(place: Place, engines: Sequence[int]) -> list[str]:
    start = str(install("vllm-router") / "vllm-router")
    return _rust_peer([start], place, ["--policy", "sticky_least_loaded"], engines, "warning")


def _rust_peer(
    start: list[str], place: Place, policy: list[str], engines: Sequence[int], level: str = "warn"
) -> list[str]:
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.metrics_port)]
    where = ["--host", "127.0.0.1", "--port", str(place.port), *metrics, "--log-level", level]
    return [*start, *where, *policy, "--worker-urls", *_urls(engines)]


_NGINX = """
  upstream engines {{ least_conn; {servers} keepalive 1024; keepalive_requests 1000000000; keepalive_timeout 1h; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}"""


def _nginx(place: Place, engines: Sequence[int]) -> list[str]:
    servers = " ".join(f"server 127.0.0.1:{engine};" for engine in engines)
    return nginx.command(place.folder, _NGINX.format(port=place.port, servers=servers))


_HAPROXY = """
global
  nbthread 1
  maxconn 8000
  log stderr format raw local0 err
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  option http-keep-alive
  http-reuse always
frontend entry
  bind 127.0.0.1:{port} backlog 4096
  default_backend engines
backend engines
  balance leastconn
  stick-table type string len 256 size 1m expire 1h
  stick on req.hdr(X-Session-ID)
  option redispatch
  option abortonclose
{servers}
"""


def _haproxy(place: Place, engines: Sequence[int]) -> list[str]:
    config = place.folder / "haproxy.cfg"
    servers = "\n".join(f"  server e{engine} 127.0.0.1:{engine} weight 1 check" for engine in engines)
    config.write_text(_HAPROXY.format(port=place.port, servers=servers))
    return [program("haproxy"), "-f", str(config), "-db"]


ROUTERS: dict[str, Command] = {
    "trimtab": _trimtab,
    "haproxy": _haproxy,
    "nginx": _nginx,
    "smg": _smg,
    "sglang-router": _sglang_router,
    "vllm-router": _vllm_router,
}
