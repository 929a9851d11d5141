"""Where a teacher is asked, in every form that a configuration may name it.

On-policy distillation was configured with one URL, a list of replicas, or a map from the value of a metadata field to
replicas; written with ``/generate`` or without. A gateway replaces the map: it has one URL, and the value travels with
the request as its route key. :class:`TeacherUrls` takes all of these and says for one sample what to call::

    urls = TeacherUrls({"openai/gsm8k": ["http://10.0.0.1:30000", "http://10.0.0.2:30000/generate"]})
    call = urls.call("openai/gsm8k", group=7)
    requests.post(call.url, json=payload | call.members, headers=call.headers)

All samples of a group go to one replica, whose cache has their prompt: groups take turns between replicas; a gateway is
told the group by the session header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["TeacherCall", "TeacherUrls"]

_ENDPOINT = "/generate"
_SESSION = "x-trimtab-session"


@dataclass(frozen=True)
class TeacherCall:
    """What to call for one sample.

    Attributes:
        url: For ``POST``; ends in ``/generate``.
        members: To be added to the payload.
        headers: To be added to the request.
    """

    url: str
    members: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


class TeacherUrls:
    """Teacher URLs, normalised once.

    Args:
        urls: One URL, several replicas, or replicas by route value.
        gateway: The URLs are those of a gateway: the route value goes with the request instead of choosing a URL.

    Raises:
        ValueError: No URL, one that is not http(s), or a map for a gateway.
    """

    def __init__(self, urls: str | Sequence[str] | Mapping[str, str | Sequence[str]], *, gateway: bool = False) -> None:
        self._routes: dict[str, tuple[str, ...]] | None = None
        self._replicas: tuple[str, ...] = ()
        self._gateway = gateway
        if not isinstance(urls, Mapping):
            self._replicas = _normalized(urls)
        elif gateway:
            raise ValueError("a gateway has one URL for all route values: its configuration has the map (route_keys)")
        else:
            self._routes = {str(value): _normalized(replicas) for value, replicas in urls.items()}
            if not self._routes:
                raise ValueError("no teacher URL is given")

    def call(self, route_value: str | None = None, *, group: int | None = None) -> TeacherCall:
        """What to call for a sample.

        Args:
            route_value: What the sample's metadata says under the configured key.
            group: Index of the sample's group.

        Raises:
            ValueError: The URLs depend on a route value, and the sample has none.
            KeyError: No URL for this value; there is no other one to fall back to.
        """
        if self._gateway:
            members = {} if route_value is None else {"route_key": route_value}
            headers = {} if group is None else {_SESSION: f"group-{group}"}
            return TeacherCall(_of_group(self._replicas, group), members, headers)
        if self._routes is None:
            return TeacherCall(_of_group(self._replicas, group))
        if route_value is None:
            raise ValueError(f"the sample names no teacher; known: {', '.join(self._routes)}")
        if route_value not in self._routes:
            raise KeyError(f"no teacher for {route_value!r}; known: {', '.join(self._routes)}")
        return TeacherCall(_of_group(self._routes[route_value], group))


def _of_group(replicas: tuple[str, ...], group: int | None) -> str:
    return replicas[(group or 0) % len(replicas)]


def _normalized(urls: str | Sequence[str]) -> tuple[str, ...]:
    given = [urls] if isinstance(urls, str) else list(urls)
    if not given:
        raise ValueError("no teacher URL is given")
    return tuple(map(_endpoint, given))


def _endpoint(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in ("http", "https") or not rest.strip("/"):
        raise ValueError(f"{url!r} is no URL of a teacher: write http://host:port, with or without {_ENDPOINT}")
    return url.rstrip("/").removesuffix(_ENDPOINT).rstrip("/") + _ENDPOINT
