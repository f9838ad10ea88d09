"""PostgreSQL behind a network that swallows packets: nothing arrives, and no connection is reset."""

from __future__ import annotations

import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import make_url

from gpuwatch.storage.database import POSTGRES_NETWORK, Database, open_database
from tests.conftest import Postgres
from tests.storage.test_database import NOTE, days


class BlackHole:
    """Passes bytes to a PostgreSQL server until `swallows` is set: connections stay, nothing arrives."""

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


def _black_hole(url: str) -> tuple[BlackHole, str]:
    parsed = make_url(url)
    folder = parsed.query.get("host")
    if isinstance(folder, str):
        hole = BlackHole((socket.AF_UNIX, f"{folder}/.s.PGSQL.{parsed.port or parsed.query.get('port', 5432)}"))
    else:
        hole = BlackHole((socket.AF_INET, (str(parsed.host), parsed.port or 5432)))
    through = parsed.set(host="127.0.0.1", port=hole.port).difference_update_query(["host", "port"])
    return hole, through.render_as_string(hide_password=False)


def test_a_network_that_swallows_every_packet_is_reported_and_holds_nobody_up_for_ever(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuwatch.storage.database.ANSWER_WITHIN_S", 1.0)
    monkeypatch.setitem(POSTGRES_NETWORK, "connect_timeout", 2)
    database_url = postgres.upgraded()
    hole, url = _black_hole(database_url)
    database = open_database(url)
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(1))
    hole.swallows.set()
    with ThreadPoolExecutor(2) as pool:
        failures = [pool.submit(_write_note, database, day) for day in (2, 3)]
        said = [str(each.exception(timeout=30)) for each in failures]
    assert any("does not answer" in each for each in said), said
    assert all("does not answer" in each or "by another task for too long" in each for each in said), said
    assert database.fault
    hole.swallows.clear()
    _write_note(database, 4)
    assert days(database) == [1, 4]
    assert database.fault is None
    database.close()
    hole.close()
    postgres.drop(database_url)


def _write_note(database: Database, day: int) -> None:
    with database.write() as connection:
        connection.exec_driver_sql(NOTE.format(day))
