"""Peers on loopback that fail in ways which `gpuwatch.testing.loopback` cannot play: silence, tunnels, slow readers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from gpuwatch.testing.loopback import ReceivedRequest, ReplyWriter


def closed_port() -> int:
    """Return a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def black_hole(host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Hold a port whose connections are never established: the queue of its listener is full."""
    with socket.create_server((host, port), backlog=0) as listener, ExitStack() as opened:
        for _ in range(4):
            filler = opened.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])


@contextmanager
def listening(play: Callable[[socket.socket], None]) -> Iterator[int]:
    """Play on every connection what HTTP does not know; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as opened:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection = opened.enter_context(listener.accept()[0])
                    threading.Thread(target=_played, args=(play, connection), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _played(play: Callable[[socket.socket], None], connection: socket.socket) -> None:
    with suppress(OSError):
        play(connection)


def tunnel_to(url: str) -> Callable[[ReceivedRequest, ReplyWriter], None]:
    """Return the answers of a proxy that opens every tunnel to one server on loopback."""
    port = int(url.rpartition(":")[2])

    def connect(request: ReceivedRequest, wire: ReplyWriter) -> None:
        if request.method != "CONNECT":
            return wire.answer(405)
        with socket.create_connection(("127.0.0.1", port)) as upstream:
            wire.raw(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=_copy, args=(upstream, wire._connection), daemon=True)
            back.start()
            _copy(wire._connection, upstream)
            back.join(10)
        return wire.close()

    return connect


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
