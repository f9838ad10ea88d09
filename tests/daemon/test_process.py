"""A daemon begins without what only the check of its settings needed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

REHEARSED = """
    import logging, os, sys, threading
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.daemon.process import rehearse

    def fail():
        logging.error("heard")
        raise SystemExit("seen")

    rehearse(fail)
    rehearse(lambda: load_settings(sys.argv[1]))
    print([watch.name for watch in load_settings(sys.argv[1]).watches], "pydantic" in sys.modules)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    rehearse(lambda: print("beside a thread nothing is rehearsed"))
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
