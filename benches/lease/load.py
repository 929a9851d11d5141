"""The load: a closed loop of acquire and settle on kept-alive connections, the same for every router.

Each connection is a sender with one message at a time, whose turns go round its sessions. A message is one call, or one
batch: the settlements of the leases that the last one got, and as many acquires. One process, one epoll loop and
hand-made requests: it has to outrun a compiled router with one thread. Every answer must be a 200.

Run as ``python -m benches.lease.load ADDRESS SECONDS PAIRS``: the address is a port or the path of a Unix socket, the
pairs are those of one batch, 0 for single calls. Prints JSON, ``{"pairs": ..., "seconds": ...}``.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from abc import ABC, abstractmethod

CONNECTIONS = 32
SESSIONS = 64
"""Sessions of each connection."""
POOL = b"/v1/router/pools/rollout/tiny"
LEASE_ID = b'"lease_id":"'
REFUSED = b'"error":'
LENGTH = b"content-length: "
SETTLE = b'{"outcome":"completed","output_tokens":512}'
DEADLINE_S = 10.0
"""A router that is silent for so long has failed."""


class AnswerError(Exception):
    """A router answered something else than 200."""


def post(path: bytes, body: bytes) -> bytes:
    """One request."""
    return b"POST %s HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        POOL + path,
        len(body),
        body,
    )


def connect(address: str) -> socket.socket:
    """A connection to a port of this machine, or to a Unix socket."""
    if not address.isdigit():
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection
    connection = socket.create_connection(("127.0.0.1", int(address)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Connection(ABC):
    """A sender on its connection; how it sends its calls is its kind's.

    Attributes:
        pairs: How many pairs have ended.
    """

    def __init__(self, address: str, name: bytes, incarnation: bytes) -> None:
        self.socket = connect(address)
        self.pairs = 0
        self._buffer = b""
        self._head = b'{"sender":"%s","incarnation":"%s"' % (name, incarnation)
        self.socket.sendall(post(b"/senders", self._head + b',"owner":"bench"}'))

    def advance(self) -> None:
        """Read what came; after a whole answer, send the next request."""
        answer = self._buffer + self.socket.recv(65536)
        end = answer.find(b"\r\n\r\n")
        if end < 0 or len(answer) < end + 4 + self._length(answer):
            if answer == self._buffer:
                raise AnswerError("the router closed a connection")
            self._buffer = answer
            return
        self._buffer = b""
        if answer[9:12] != b"200":
            raise AnswerError(answer.decode(errors="replace"))
        self._answered(answer, end)

    @abstractmethod
    def _answered(self, answer: bytes, end: int) -> None:
        """Count what ``answer``, whose head ends at ``end``, has ended, and send the next message."""

    def _acquire(self, seq: int, settled: int) -> bytes:
        """The body of an acquire: what is below ``settled`` needs no record any more."""
        intervals = b"[[0,%d]]" % (settled - 1) if settled else b"[]"
        return self._head + b',"seq":%d,"session":"traj-%d","settled":%s}' % (seq, seq % SESSIONS, intervals)

    @staticmethod
    def _length(answer: bytes) -> int:
        at = answer.index(LENGTH) + len(LENGTH)
        return int(answer[at : answer.index(b"\r", at)])


class Single(Connection):
    """One call per message."""

    _holds = False

    def _answered(self, answer: bytes, end: int) -> None:
        at = answer.find(LEASE_ID, end)
        if at >= 0:
            at += len(LEASE_ID)
            self._holds = True
            self.socket.sendall(post(b"/leases/%s/settle" % answer[at : at + 16], SETTLE))
            return
        self.pairs += self._holds
        self._holds = False
        self.socket.sendall(post(b"/leases", self._acquire(self.pairs, self.pairs)))


class Batched(Connection):
    """One batch per message."""

    size = 1
    _sent = 0

    def _answered(self, answer: bytes, end: int) -> None:
        if answer.find(REFUSED, end) >= 0:
            raise AnswerError(answer.decode(errors="replace"))
        leases = [part[:16] for part in answer[end:].split(LEASE_ID)[1:]]
        # Those of the batch before the last were settled in the last.
        settled, first = self._sent - len(leases), self._sent
        self.pairs = settled
        self._sent += self.size
        requests = [b'{"settle":{"lease_id":"%s",%s}' % (lease, SETTLE[1:]) for lease in leases]
        # Telling once in a message what is settled is enough.
        requests.extend(
            b'{"acquire":%s}' % self._acquire(seq, settled if seq == first else 0) for seq in range(first, self._sent)
        )
        self.socket.sendall(post(b"/leases:batch", b'{"requests":[%s]}' % b",".join(requests)))


def drive(address: str, seconds: float, pairs: int) -> dict[str, float]:
    """Load the router at ``address``.

    Returns:
        Pairs that ended, and the seconds it took.
    """
    incarnation = b"%d" % time.time_ns()
    kind: type[Connection] = Single
    if pairs:
        kind, Batched.size = Batched, pairs
    poll = select.epoll()
    connections: dict[int, Connection] = {}
    for number in range(CONNECTIONS):
        connection = kind(address, b"bench-%d" % number, incarnation)
        connections[connection.socket.fileno()] = connection
        poll.register(connection.socket, select.EPOLLIN)
    began = time.monotonic()
    now, until = began, began + seconds
    while now < until:
        ready = poll.poll(DEADLINE_S)
        if not ready:
            raise AnswerError(f"no answer for {DEADLINE_S:.0f} s")
        for number, _ in ready:
            connections[number].advance()
        now = time.monotonic()
    for connection in connections.values():
        connection.socket.close()
    return {"pairs": sum(connection.pairs for connection in connections.values()), "seconds": now - began}


if __name__ == "__main__":
    print(json.dumps(drive(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))))
