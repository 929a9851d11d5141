"""One HTTP call with the standard library: proxies ignored, redirects refused, errors that say what to do."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 5.0
_OK = 200


def fetch_json(base_url: str, path: str, *, key: str | None = None) -> dict[str, Any]:
    """The JSON object at ``base_url`` + ``path``.

    Args:
        base_url: ``http[s]://host[:port]``; certificates are checked against the system's (or ``SSL_CERT_FILE``).
        path: Begins with a slash.
        key: Shown as a bearer token.

    Raises:
        click.ClickException: Nothing listens there, or what listens is no trimtab gateway.
    """
    status, document = _ask(base_url, path, key=key, timeout_s=TIMEOUT_S)
    if status == _OK and document is not None:
        return document
    raise _refused(base_url, path, status, document)


def post_json(base_url: str, path: str, body: dict[str, Any], *, key: str | None, timeout_s: float) -> dict[str, Any]:
    """The JSON object that answers ``POST path``: a result, also one that did not work on every engine.

    Args:
        base_url: As of ``fetch_json``.
        path: Begins with a slash.
        body: Sent as JSON.
        key: Shown as a bearer token.
        timeout_s: For the whole answer.

    Raises:
        click.ClickException: As ``fetch_json``, or the call was refused as a whole.
    """
    status, document = _ask(base_url, path, body=body, key=key, timeout_s=timeout_s)
    if document is not None and "error" not in document:
        return document
    raise _refused(base_url, path, status, document)


def _ask(
    base_url: str, path: str, *, body: dict[str, Any] | None = None, key: str | None, timeout_s: float
) -> tuple[int, dict[str, Any] | None]:
    connection = _connection(base_url, timeout_s)
    try:
        connection.connect()
        with _hung_up_after(timeout_s, connection.sock):
            headers = {"Accept": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
            method, content = ("GET", None) if body is None else ("POST", json.dumps(body))
            connection.request(method, path, body=content, headers=headers)
            response = connection.getresponse()
            return response.status, _parsed(response.read())
    except TimeoutError:
        raise click.ClickException(f"{base_url} accepted no request or sent no answer within {timeout_s:g} s") from None
    except ConnectionRefusedError:
        raise click.ClickException(
            f"nothing listens on {base_url}; start a gateway with 'trimtab up' or 'trimtab serve', or say where it is "
            "with --url"
        ) from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: a host no resolver can be asked for
        raise click.ClickException(f"{base_url} cannot be asked: {str(error) or type(error).__name__}") from None
    finally:
        connection.close()


def _refused(base_url: str, path: str, status: int, document: dict[str, Any] | None) -> click.ClickException:
    reported = (document or {}).get("error")
    reason = reported.get("message") if isinstance(reported, dict) else None
    return click.ClickException(
        f"{base_url}{path} answered {status}" + (f": {reason}" if reason else "; is it a trimtab gateway?")
    )


@contextmanager
def _hung_up_after(seconds: float, connected: socket.socket) -> Iterator[None]:
    """End what is still being read when the time is over.

    A socket's own timeout begins anew with every byte: a server that sends one a second would never be given up.
    """

    def hang_up() -> None:
        with suppress(OSError):  # closed already
            connected.shutdown(socket.SHUT_RDWR)

    deadline = threading.Timer(seconds, hang_up)
    deadline.start()
    try:
        yield
    finally:
        deadline.cancel()


def _connection(base_url: str, timeout_s: float) -> http.client.HTTPConnection:
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise click.UsageError(f"--url {base_url!r} is refused: {error}") from None
    if parts.scheme not in {"http", "https"} or not host or parts.path.strip("/") or parts.username is not None:
        raise click.UsageError(f"--url {base_url!r} is refused: it must be like http[s]://127.0.0.1:8080")
    try:
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout_s)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)
    except http.client.InvalidURL:
        raise click.UsageError(f"--url {base_url!r} is refused: {host!r} is no host name") from None


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
