"""The routers' own programs, each with the policy that the simulation stands for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benches.balance.http.engines import TIME_SCALE
from benches.balance.policies.plain import POLL_S
from benches.balance.policies.registry import STICKY, UNCLOSED
from benches.gateway import nginx
from benches.gateway.routers import ROUTERS, Place
from benches.gateway.tools import install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Served:
    """A router that can be started.

    Attributes:
        policy: The contender of the simulation that it is compared with.
        command: From a place and the engines' ports to a command line.
        health: A path that answers 200 once it serves.
        finish: Path that ends a session, where there is one.
    """

    policy: str
    command: Callable[[Place, Sequence[int]], list[str]]
    health: str = "/generate"
    finish: str | None = None


def _rust_peer(program: str, *start: str) -> Callable[[Place, Sequence[int]], list[str]]:
    """One of the two that share their options; ``start`` is what differs."""

    def command(place: Place, engines: Sequence[int]) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(place.port), "--log-level", "warn"]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.metrics_port)]
        urls = [f"http://127.0.0.1:{engine}" for engine in engines]
        return [str(install(program) / program), *start, *where, *metrics, "--worker-urls", *urls]

    return command


def _smg(*policy: str) -> Callable[[Place, Sequence[int]], list[str]]:
    # Its protection of engines with full memory comes before every policy, and moves sessions that are pinned.
    plain = ("--disable-tokenizer-autoload", "--disable-worker-overload-protection")
    return _rust_peer("smg", "launch", *plain, "--policy", *policy)


_HASH = """
  upstream engines {{ hash $http_x_session_id consistent; {servers} keepalive 1024; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 1h;
    }}
  }}"""


def _nginx_hash(place: Place, engines: Sequence[int]) -> list[str]:
    servers = " ".join(f"server 127.0.0.1:{engine};" for engine in engines)
    return nginx.command(place.folder, _HASH.format(port=place.port, servers=servers))


def _trimtab(*settings: str) -> Callable[[Place, Sequence[int]], list[str]]:
    def command(place: Place, engines: Sequence[int]) -> list[str]:
        config = place.folder / "trimtab.toml"
        addresses = ", ".join(f'"127.0.0.1:{engine}"' for engine in engines)
        model = "\n".join([f"engines = [{addresses}]", *settings])
        config.write_text(f"[gateway]\nport = {place.port}\n\n[roles.rollout.models.sim]\n{model}\n")
        return [str(Path(sys.executable).with_name("trimtab")), "serve", "--config", str(config)]

    return command


def install_all() -> None:
    """Install the peers that come from the package index, before several processes at once want them."""
    for program in ("smg", "sglang-router", "vllm-router"):
        install(program)


SERVED: dict[str, Served] = {
    "trimtab": Served(UNCLOSED, _trimtab()),
    "trimtab no spill": Served(STICKY, _trimtab("spill = false")),
    "haproxy": Served("haproxy", ROUTERS["haproxy"]),
    "nginx hash": Served("consistent hash", _nginx_hash),
    "smg round_robin": Served("round robin", _smg("round_robin")),
    # Whole seconds, so that it asks as often as in modelled time.
    "smg power_of_two": Served(
        "power of two, smg", _smg("power_of_two", "--load-monitor-interval", str(round(POLL_S * TIME_SCALE)))
    ),
    "smg cache_aware": Served("cache-aware, smg", _smg("cache_aware")),
    "smg manual": Served("manual min_load", _smg("manual", "--assignment-mode", "min_load")),
    "sglang-router cache_aware": Served(
        "cache-aware", _rust_peer("sglang-router", "launch", "--policy", "cache_aware")
    ),
    "sglang-router manual": Served("manual min_load", ROUTERS["sglang-router"]),
    "vllm-router": Served("sticky_least_loaded", ROUTERS["vllm-router"], finish="/finish_session?session_id="),
}
