"""The environment of an engine's processes."""

from __future__ import annotations

from collections.abc import Mapping

FAST_DEATH = {
    # A dead scheduler ends the server after a second. By default SGLang freezes first, five seconds to a minute, while
    # it waits for dumps that nobody reads.
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
}
_NO_PROXY = ("no_proxy", "NO_PROXY")
_LOCAL = ("127.0.0.1", "localhost", "::1")


def child_environment(
    inherited: Mapping[str, str], wanted: Mapping[str, str], made: Mapping[str, str], *, direct: tuple[str, ...] = ()
) -> dict[str, str]:
    """The whole environment of an engine's process.

    Args:
        inherited: The launching process's own.
        wanted: What the model's and the group's specification add; may override the defaults.
        made: What the launcher sets; wins over everything.
        direct: Hosts, beyond this machine, that are never reached through a proxy: the engine's own addresses.
    """
    environment = {**inherited, **FAST_DEATH, "PYTHONUNBUFFERED": "1", **wanted, **made}
    hosts: dict[str, None] = {}
    for name in _NO_PROXY:
        hosts |= dict.fromkeys(host for host in environment.get(name, "").split(",") if host)
    hosts |= dict.fromkeys((*_LOCAL, *direct))
    # Both spellings: libraries disagree about which one counts.
    environment |= dict.fromkeys(_NO_PROXY, ",".join(hosts))
    return environment
