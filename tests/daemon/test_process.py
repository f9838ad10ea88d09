"""A daemon starts without the libraries that only the creation of its database needed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

IN_A_CHILD = """
    import logging, sys, threading
    from gpuwatch.daemon.process import run_in_child

    def fail():
        import alembic
        logging.error("heard")
        raise SystemExit("seen")

    run_in_child(fail)
    print("alembic" in sys.modules)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    run_in_child(lambda: print("beside a thread nothing is done"))
"""


def test_a_child_keeps_its_memory_and_its_errors() -> None:
    command = [sys.executable, "-c", textwrap.dedent(IN_A_CHILD)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("False\n", "")


_FIRST_START = """
import sys
from sqlalchemy import inspect
from gpuwatch.daemon.process import claim_store
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade
with claim_store(sys.argv[1]):
    store = open_database(sys.argv[1])
    print(upgrade(store), inspect(store.engine).has_table("launch"))
    print(sorted({name.split(".")[0] for name in sys.modules} & {"alembic", "mako"}))
    print([name for name in sys.modules if "dialects.postgresql" in name])
"""


def test_what_creates_a_new_database_does_not_stay_in_memory(tmp_path: Path) -> None:
    """alembic takes 8 MB; with SQLite, SQLAlchemy's PostgreSQL part takes 2 MB."""
    command = [sys.executable, "-c", _FIRST_START, f"sqlite:///{tmp_path}/new.db"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout
    assert printed.split("\n")[:3] == ["[] True", "[]", "[]"]


def test_a_database_that_cannot_be_created_is_reported_by_the_daemon_itself(tmp_path: Path) -> None:
    """The child prints nothing, and leaves nothing behind."""
    command = [sys.executable, "-c", _FIRST_START, f"sqlite:///{tmp_path}/new.db"]
    limited = ["sh", "-c", "ulimit -f 16; trap '' XFSZ; exec \"$@\"", "sh", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 1
    assert done.stderr.count("StoreDiskFailed") == 1
