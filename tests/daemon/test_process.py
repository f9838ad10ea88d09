"""A daemon starts without the libraries that only the validation of its settings needed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

REHEARSED = """
    import logging, os, sys, threading
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.daemon.process import run_in_child

    def fail():
        logging.error("heard")
        raise SystemExit("seen")

    run_in_child(fail)
    run_in_child(lambda: load_settings(sys.argv[1]))
    print([watch.name for watch in load_settings(sys.argv[1]).watches], "pydantic" in sys.modules)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    run_in_child(lambda: print("beside a thread nothing is rehearsed"))
"""


def test_the_first_start_checks_new_settings_in_a_child_that_keeps_its_memory_and_its_errors(tmp_path: Path) -> None:
    settings = tmp_path / "gpuwatch.toml"
    settings.write_text('[providers.vastai]\n\n[[watch]]\nname = "h100"\ngpu = "H100"\nmax_price = 2\n')
    settings.chmod(0o600)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REHEARSED), str(settings)],
        env={"HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("['h100'] False\n", "")


_FIRST_START = """
import sys
from sqlalchemy import inspect
from gpuwatch.daemon.process import claim_store
from gpuwatch.storage.database import open_database
from gpuwatch.storage.migrate import upgrade
with claim_store(sys.argv[1]):
    store = open_database(sys.argv[1])
    print(upgrade(store), inspect(store.engine).has_table("launch"))
    print(sorted({name.split(".")[0] for name in sys.modules} & {"alembic", "mako", "pydantic"}))
    print([name for name in sys.modules if "dialects.postgresql" in name])
"""


def test_what_creates_a_new_database_does_not_stay_in_memory(tmp_path: Path) -> None:
    """alembic takes 8 MB; with SQLite, SQLAlchemy's PostgreSQL part takes 2 MB."""
    command = [sys.executable, "-c", _FIRST_START, f"sqlite:///{tmp_path}/new.db"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert printed.split("\n")[:3] == ["[] True", "[]", "[]"]


def test_a_database_that_cannot_be_created_is_reported_by_the_daemon_itself(tmp_path: Path) -> None:
    """The child prints nothing, and leaves nothing behind."""
    command = [sys.executable, "-c", _FIRST_START, f"sqlite:///{tmp_path}/new.db"]
    limited = ["sh", "-c", "ulimit -f 16; trap '' XFSZ; exec \"$@\"", "sh", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("StoreDiskFailed") == 1
