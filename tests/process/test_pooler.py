"""gpuwatch through PgBouncer in transaction mode: each transaction may get another session of the server."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from gpuwatch.emulator import Delays, Marketplace
from tests.black_hole import black_hole
from tests.conftest import Postgres
from tests.process.audit import Audit, Limits
from tests.process.crash_matrix import somebody_rents
from tests.process.daemon_child import bargain, terminate, wait_for
from tests.process.postgres_pair import free_port
from tests.process.two_daemons import KEY, home_of

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
CONFIG = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 3
"""


@contextmanager
def pooler(url: str, folder: Path) -> Iterator[str]:
    """The address of a database through PgBouncer, with fewer sessions than the daemons have connections."""
    hole, through = black_hole(url)
    port = free_port()
    config = folder / "pgbouncer.ini"
    config.write_text(CONFIG.format(server=make_url(through).port, port=port))
    for each in (folder, *folder.parents[:3]):
        each.chmod(each.stat().st_mode | 0o755)
    assert PGBOUNCER is not None
    user = "nobody" if os.geteuid() == 0 else None  # it refuses to run as root
    with (folder / "pgbouncer.log").open("wb") as log:
        child = subprocess.Popen([PGBOUNCER, str(config)], user=user, stderr=log, stdout=log, cwd="/")
    try:
        yield make_url(through).set(port=port).render_as_string(hide_password=False)
    finally:
        child.kill()
        child.wait()
        hole.close()


@pytest.mark.slow
@pytest.mark.skipif(PGBOUNCER is None, reason="needs pgbouncer: apt-get install pgbouncer")
def test_it_rents_once_and_hands_over_through_a_pooler(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.upgraded()
    with (
        pooler(url, tmp_path) as pooled,
        Marketplace(seed=3, key=KEY, size=0, delays=Delays(running_s=0.2)) as market,
    ):
        somebody_rents(market, KEY)
        a, b = (home_of(tmp_path / name, market.url, pooled, {"cheap": "H100"}) for name in ("a", "b"))
        with a.daemon() as first:
            wait_for(lambda: "watching" in a.log(), within_s=300)
            with b.daemon() as second:
                wait_for(lambda: "this one stands by" in b.log(), within_s=300)
                bargain(market)
                wait_for(lambda: a.states() == ["running"], within_s=300)
                assert a.run("hosts", "step-down").returncode == 0
                wait_for(lambda: "this host leads now" in b.log(), within_s=300)
                assert b.run("stop", "--all", "--yes").returncode == 0
                wait_for(lambda: a.states() == ["ended"], within_s=300)
                assert [terminate(child)[0] for child in (first, second)] == [0, 0]
        assert Audit(market, url, {"cheap": Limits(1, 1)}, None).faults() == []
        for home in (a, b):
            assert "prepared statement" not in home.log()
            assert "Traceback" not in home.log()
    postgres.drop(url)
