"""A real HTTP server on loopback whose answers a test writes byte by byte."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class ReceivedRequest:
    """One request as it arrived."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    raw: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def params(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ReplyWriter:
    """Writes the response on one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.is_open = True

    def raw(self, data: bytes) -> None:
        self._connection.sendall(data)

    def answer(self, status: int = 200, body: object = b"", **headers: str) -> None:
        """Send a complete response; a body other than bytes is sent as JSON. `content_encoding="gzip"` is a header."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [
            f"HTTP/1.1 {status} x",
            *(f"{name}: {value}" for name, value in ({"content-length": str(len(data))} | header_fields).items()),
        ]
        self.raw("\r\n".join([*lines, "", ""]).encode() + data)

    def close(self) -> None:
        self.is_open = False
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Reset the connection: the other side gets "connection reset"."""
        self.is_open = False
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()


Answer = Callable[[ReceivedRequest, ReplyWriter], None]


@dataclass
class Server:
    """`requests` has all received requests, in order; `connections` counts the opened ones."""

    url: str
    requests: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0


@contextmanager
def serving(answer: Answer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Server]:
    """Serve until the block ends. `answer` runs once per request, on the connection's own thread."""
    listener = _LoopbackServer(answer, tls, host)
    try:
        yield listener.server
    finally:
        listener.close()


class _LoopbackServer:
    def __init__(self, answer: Answer, tls: ssl.SSLContext | None, host: str) -> None:
        self._answer = answer
        self._tls = tls
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        authority = f"[{host}]" if ":" in host else host
        self.server = Server(f"{'https' if tls else 'http'}://{authority}:{self._listener.getsockname()[1]}")
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        for one in [self._listener, *self._connections]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.server.connections += 1
                self._connections.append(connection)
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, raw_connection: socket.socket) -> None:
        connection = raw_connection
        with suppress(OSError, ValueError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(raw_connection, server_side=True)
                self._connections.append(connection)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            writer = ReplyWriter(connection)
            while writer.is_open and (request := _read(connection)):
                self.server.requests.append(request)
                self._answer(request, writer)
        connection.close()
        raw_connection.close()


def _read(connection: socket.socket) -> ReceivedRequest | None:
    raw = b""
    while b"\r\n\r\n" not in raw:
        chunk = connection.recv(65536)
        if not chunk:
            return None
        raw += chunk
    head, _, body = raw.partition(b"\r\n\r\n")
    request_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, target, _ = request_line.split(" ", 2)
    return ReceivedRequest(method, target, headers, body, raw)
