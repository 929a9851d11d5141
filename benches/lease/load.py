"""The load: a closed loop of acquire and settle on kept-alive connections, the same for every router.

Each connection is a sender with one request at a time, whose turns go round its sessions. One process, one epoll loop
and hand-made requests: it has to outrun a compiled router with one thread. Every answer must be a 200.

Run as ``python -m benches.lease.load PORT SECONDS``: prints JSON, ``{"pairs": ..., "seconds": ...}``.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

CONNECTIONS = 32
SESSIONS = 64
"""Sessions of each connection."""
POOL = b"/v1/router/pools/rollout/tiny"
LEASE_ID = b'"lease_id":"'
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


class Connection:
    """A sender on its connection."""

    def __init__(self, port: int, name: bytes, incarnation: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pairs = 0
        self._buffer = b""
        self._head = b'{"sender":"%s","incarnation":"%s"' % (name, incarnation)
        self._holds = False
        self.socket.sendall(post(b"/senders", self._head + b',"owner":"bench"}'))

    def advance(self) -> bool:
        """Read what came; after a whole answer, send the next request.

        Returns:
            Whether the answer ended a pair.
        """
        answer = self._buffer + self.socket.recv(65536)
        end = answer.find(b"\r\n\r\n")
        if end < 0 or len(answer) < end + 4 + self._length(answer):
            if answer == self._buffer:
                raise AnswerError("the router closed a connection")
            self._buffer = answer
            return False
        self._buffer = b""
        if answer[9:12] != b"200":
            raise AnswerError(answer.decode(errors="replace"))
        at = answer.find(LEASE_ID, end)
        if at >= 0:
            at += len(LEASE_ID)
            self._holds = True
            self.socket.sendall(post(b"/leases/%s/settle" % answer[at : at + 16], SETTLE))
            return False
        ended, self._holds = self._holds, False
        self.pairs += ended
        self._acquire()
        return ended

    def _acquire(self) -> None:
        seq = self.pairs
        settled = b"[[0,%d]]" % (seq - 1) if seq else b"[]"
        turn = b',"seq":%d,"session":"traj-%d","settled":%s}' % (seq, seq % SESSIONS, settled)
        self.socket.sendall(post(b"/leases", self._head + turn))

    @staticmethod
    def _length(answer: bytes) -> int:
        at = answer.index(LENGTH) + len(LENGTH)
        return int(answer[at : answer.index(b"\r", at)])


def drive(port: int, seconds: float) -> dict[str, float]:
    """Load the router at ``port``.

    Returns:
        Pairs that ended, and the seconds it took.
    """
    incarnation = b"%d" % time.time_ns()
    poll = select.epoll()
    connections: dict[int, Connection] = {}
    for number in range(CONNECTIONS):
        connection = Connection(port, b"bench-%d" % number, incarnation)
        connections[connection.socket.fileno()] = connection
        poll.register(connection.socket, select.EPOLLIN)
    pairs, began = 0, time.monotonic()
    now, until = began, began + seconds
    while now < until:
        ready = poll.poll(DEADLINE_S)
        if not ready:
            raise AnswerError(f"no answer for {DEADLINE_S:.0f} s")
        for number, _ in ready:
            pairs += connections[number].advance()
        now = time.monotonic()
    for connection in connections.values():
        connection.socket.close()
    return {"pairs": pairs, "seconds": now - began}


if __name__ == "__main__":
    print(json.dumps(drive(int(sys.argv[1]), float(sys.argv[2]))))
