"""A network that drops packets between a program and PostgreSQL: connections stay open, but nothing arrives."""

from __future__ import annotations

import contextlib
import socket
import threading

from sqlalchemy import make_url


class BlackHole:
    """Forwards bytes to a PostgreSQL server until `swallows` is set: then connections stay, but nothing arrives."""

    def __init__(self, server: tuple[int, str | tuple[str, int]]) -> None:
        self._family, self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.swallows = threading.Event()
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.socket(self._family)
                upstream.connect(self._server)
                self._open += [client, upstream]
                for source, sink in ((client, upstream), (upstream, client)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(65536):
                if not self.swallows.is_set():
                    sink.sendall(received)

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def black_hole(url: str) -> tuple[BlackHole, str]:
    parsed = make_url(url)
    folder = parsed.query.get("host")
    if isinstance(folder, str):
        hole = BlackHole((socket.AF_UNIX, f"{folder}/.s.PGSQL.{parsed.port or parsed.query.get('port', 5432)}"))
    else:
        hole = BlackHole((socket.AF_INET, (str(parsed.host), parsed.port or 5432)))
    through = parsed.set(host="127.0.0.1", port=hole.port).difference_update_query(["host", "port"])
    return hole, through.render_as_string(hide_password=False)
