"""A small HTTP server on plain sockets: fast keep-alive, and control over how an answer fails."""

from __future__ import annotations

import contextlib
import functools
import gzip
import select
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from gpuwatch.emulator.answers import EmulatorReply, text_reply
from gpuwatch.emulator.request import EmulatorRequest

MAX_BODY = 16 * 1024 * 1024
MAX_HEADERS = 200
DRIP_BYTES = 16
SMALL_BODY = 65_536
PHRASES = {status.value: status.phrase for status in HTTPStatus}
POLL_MS = 20

RequestHandler = Callable[[EmulatorRequest], EmulatorReply]


class LoopbackServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """A server on loopback: one thread per connection; all of them end with `close`.

    Args:
        port: 0 picks a free one.
        answer: called for every request, from any thread.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, answer: RequestHandler) -> None:
        self.answer = answer
        self.stopping = threading.Event()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Connection)

    @property
    def url(self) -> str:
        """The port it listens on."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def register(self, connection: socket.socket) -> None:
        """Register an open connection."""
        with self._lock:
            self._connections[connection] = threading.current_thread()

    def unregister(self, connection: socket.socket) -> None:
        """Remove a closed connection."""
        with self._lock:
            self._connections.pop(connection, None)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Close it without a shutdown: a reset must remain a reset."""
        self.close_request(request)

    def close(self) -> None:
        """Stop listening, end every connection and wait for its thread."""
        self.stopping.set()
        self.shutdown()
        self.server_close()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in connections.values():
            thread.join(timeout=5)


class LoopbackService:
    """A server on loopback from `start` (or entering) to `close`, in threads of its own. Subclasses define `answer`.

    Args:
        port: 0 picks a free one.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._listener: LoopbackServer | None = None
        self._threads: list[threading.Thread] = []

    def answer(self, request: EmulatorRequest) -> EmulatorReply:
        """Answer a request; called from any thread."""
        raise NotImplementedError

    def background_loops(self) -> list[Callable[[], None]]:
        """Further threads while it serves; each ends when `listener.stopping` is set."""
        return []

    def start(self) -> Self:
        """Open the socket and serve."""
        self._listener = listener = LoopbackServer(self.port, self.answer)
        loops = [lambda: listener.serve_forever(poll_interval=0.01), *self.background_loops()]
        self._threads = [threading.Thread(target=loop, name="marketplace", daemon=True) for loop in loops]
        for thread in self._threads:
            thread.start()
        return self

    def close(self) -> None:
        """End every connection and every thread."""
        if self._listener is not None:
            self._listener.close()
            for thread in self._threads:
                thread.join(timeout=5)
            self._listener = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def listener(self) -> LoopbackServer:
        """The open server. Raises RuntimeError: it is not open."""
        if self._listener is None:
            raise RuntimeError("the server is not open: use it in a with statement, or call start()")
        return self._listener

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return self.listener.url


class Connection(socketserver.StreamRequestHandler):
    """One client's connection, request after request."""

    disable_nagle_algorithm = True
    rbufsize = 65_536
    server: LoopbackServer
    connection: socket.socket

    def handle(self) -> None:
        """Serve until the client disconnects, the server stops, or an answer ends the connection."""
        self.server.register(self.connection)
        try:
            with contextlib.suppress(OSError):
                while not self.server.stopping.is_set() and self._serve_one():
                    pass
        finally:
            self.server.unregister(self.connection)

    def _serve_one(self) -> bool:
        head = self._read_head()
        if head is None:
            return False
        method, target, headers = head
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdigit() or int(length) > MAX_BODY:
            return self._send(text_reply("Content-Length required", 411), keep_alive=False)
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            return False
        request = parse_request(method, target, headers, raw)
        request.address = self.client_address[0]
        answer = self.server.answer(request)
        if answer.delivery.reset or answer.delivery.hold_s > 0:
            self._send_fault(answer)
            return False
        return self._send(answer, keep_alive=headers.get("connection", "").lower() != "close")

    def _read_head(self) -> tuple[str, str, dict[str, str]] | None:
        line = self.rfile.readline(65_537)
        parts = line.decode("latin-1").split()
        if len(parts) != 3:
            return None
        headers: dict[str, str] = {}
        for _ in range(MAX_HEADERS):
            line = self.rfile.readline(65_537)
            if line in (b"\r\n", b"\n", b""):
                return parts[0], parts[1], headers
            name, _colon, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        return None

    def _send(self, answer: EmulatorReply, keep_alive: bool) -> bool:
        delivery = answer.delivery
        if delivery.delay_s and self.server.stopping.wait(delivery.delay_s):
            return False
        head = encode_head(answer, keep_alive)
        body = answer.body if delivery.cut_at is None else answer.body[: delivery.cut_at]
        if delivery.drip_s:
            return self._drip(head, body, delivery.drip_s) and keep_alive
        if len(body) < SMALL_BODY:
            self.connection.sendall(head + body)
        else:
            self.connection.sendall(head)
            self.connection.sendall(body)
        return keep_alive and delivery.cut_at is None

    def _drip(self, head: bytes, body: bytes, pause_s: float) -> bool:
        self.connection.sendall(head)
        for start in range(0, len(body), DRIP_BYTES):
            if self.server.stopping.wait(pause_s):
                return False
            self.connection.sendall(body[start : start + DRIP_BYTES])
        return True

    def _send_fault(self, answer: EmulatorReply) -> None:
        """Reset the connection, or keep it silent until the client gives up."""
        if answer.delivery.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        deadline = time.monotonic() + answer.delivery.hold_s
        while time.monotonic() < deadline and not self.server.stopping.is_set() and not self._is_disconnected():
            pass
        if answer.delivery.on_close is not None:
            answer.delivery.on_close()

    def _is_disconnected(self) -> bool:
        poller = select.poll()  # select() itself cannot watch file numbers above 1023
        poller.register(self.connection, select.POLLIN)
        if not poller.poll(POLL_MS):
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True


def parse_request(method: str, target: str, headers: dict[str, str], raw: bytes) -> EmulatorRequest:
    """Build a request from the received data."""
    parts = urlsplit(target)
    params = dict(parse_qsl(parts.query, keep_blank_values=True)) if parts.query else {}
    bearer = headers.get("authorization", "")
    key = bearer[7:].strip() if bearer.lower().startswith("bearer ") else params.get("api_key")
    accepts_gzip = "gzip" in headers.get("accept-encoding", "")
    path = unquote(parts.path)
    return EmulatorRequest(
        method, path, params, raw, key or None, gzip=accepts_gzip, arrived_ns=time.monotonic_ns(), headers=headers
    )


def encode_head(answer: EmulatorReply, keep_alive: bool) -> bytes:
    """Return the status line and the headers; a cut answer still promises its whole length."""
    lines = [
        f"HTTP/1.1 {answer.status} {PHRASES.get(answer.status, 'Unknown')}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        *(f"{name}: {value}" for name, value in answer.headers),
    ]
    if not keep_alive:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@functools.lru_cache(maxsize=8)
def gzip_cached(body: bytes) -> bytes:
    """Compress a body; large bodies are the same object every time and are compressed once."""
    return gzip.compress(body, 5)
