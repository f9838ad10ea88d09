"""`gpuwatch check --metrics-file`: the textfile for the collector, checked by Prometheus' own tool."""

from __future__ import annotations

import re
import shutil
import sqlite3
import stat
import subprocess
from pathlib import Path

import pytest
from alembic import command

from gpuwatch.emulator import Marketplace
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import alembic_config
from tests.cli.conftest import Shell

SETTINGS = 'database_url = "sqlite:///gpuwatch.db"\n' + "".join(
    f'[[watch]]\nname = "{name}"\ngpu = ["H100"]\nmax_price = {limit}\n'
    for name, limit in (("dear", 9.0), ("cheap", 1.0))
)


def values(path: Path) -> dict[str, float]:
    """Parse series → value; every line must be valid text format without a timestamp, which the collector rejects."""
    text = path.read_text()
    assert text.endswith("\n")
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            parts = re.fullmatch(r'([a-z_]+(?:\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)*\})?) (\S+)', line)
            assert parts is not None, line
            assert parts[1] not in found
            found[parts[1]] = float(parts[2])
    return found


def judged(path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    ran = subprocess.run(
        ["promtool", "check", "metrics"], input=path.read_bytes(), capture_output=True, timeout=240, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_a_timer_s_check_writes_what_it_saw(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    shell.settings(SETTINGS)
    path = shell.folder / "gpuwatch.prom"
    assert shell("check", "--metrics-file", str(path)).code == 0
    found = values(path)
    assert found['gpuwatch_watch_best_price_usd_gpu_hour{watch="dear"}'] == 3.6
    assert found['gpuwatch_watch_max_price_usd_gpu_hour{watch="cheap"}'] == 1.0
    assert found['gpuwatch_provider_healthy{provider="vastai"}'] == 1.0
    assert found['gpuwatch_offers{gpu="H100 SXM",provider="vastai"}'] == 1.0
    assert found['gpuwatch_best_price_usd_gpu_hour{gpu="H100 SXM",provider="vastai"}'] == 3.6
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in shell.folder.glob("*.part")] == []
    judged(path)


def test_a_provider_that_does_not_answer_is_in_the_file_too(shell: Shell, market: Marketplace) -> None:
    """Exit code 3 and a file that reports it: after a failure the old figures must not stay."""
    shell.settings(SETTINGS)
    path = shell.folder / "gpuwatch.prom"
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    assert shell("check", "--metrics-file", str(path)).code == 0
    polled = 'gpuwatch_provider_last_complete_poll_timestamp_seconds{provider="vastai"}'
    before = values(path)[polled]
    market.close()
    assert shell("check", "--metrics-file", str(path)).code == 3
    found = values(path)
    assert found['gpuwatch_provider_healthy{provider="vastai"}'] == 0.0
    assert found[polled] == pytest.approx(before, abs=1.0)
    assert not any(name.startswith("gpuwatch_poll_age") for name in found)  # it would stand still in a file
    judged(path)


@pytest.mark.parametrize("schema", [None, "0009"])
def test_without_a_usable_store_the_file_says_so(shell: Shell, market: Marketplace, schema: str | None) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    shell.settings(SETTINGS)
    if schema:
        store = open_database(f"sqlite:///{shell.folder}/gpuwatch.db")
        with store.write() as connection:
            command.upgrade(alembic_config(connection), schema)
        store.close()
    path = shell.folder / "gpuwatch.prom"
    ran = shell("check", "--no-store", "--metrics-file", str(path))
    assert ran.code == 0, ran.err
    found = values(path)
    assert found["gpuwatch_store_readable"] == 0.0
    assert found['gpuwatch_watch_best_price_usd_gpu_hour{watch="dear"}'] == 3.6
    judged(path)


def test_a_folder_that_is_not_there_is_one_line(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    shell.settings(SETTINGS)
    ran = shell("check", "--metrics-file", str(shell.folder / "none" / "x.prom"))
    assert ran.code == 2
    assert "cannot write" in ran.err
    assert "Traceback" not in ran.err


def test_a_month_after_the_last_answer_no_offer_and_no_price_is_exported(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    shell.settings(SETTINGS)
    path = shell.folder / "gpuwatch.prom"
    assert shell("check", "--metrics-file", str(path)).code == 0
    with sqlite3.connect(shell.folder / "gpuwatch.db") as store:
        store.execute("UPDATE poll SET at_s = at_s - 2592000")
        store.execute("UPDATE price_interval SET seen_from_s = seen_from_s - 2592000")
    market.close()
    assert shell("check", "--metrics-file", str(path)).code == 3
    found = values(path)
    assert found['gpuwatch_provider_healthy{provider="vastai"}'] == 0.0
    assert [name for name in found if "offers" in name or "best_price" in name] == []
    judged(path)


def test_an_offer_that_a_check_no_longer_sees_is_not_counted(shell: Shell, market: Marketplace) -> None:
    """Checks alone read no whole market, so the store does not learn that it is gone."""
    offer = market.publish(gpu="H100 SXM", count=1, usd_hour=3.00)
    shell.settings(SETTINGS)
    path = shell.folder / "gpuwatch.prom"
    assert shell("check", "--metrics-file", str(path)).code == 0
    market.withdraw(offer)
    assert shell("check", "--metrics-file", str(path)).code == 1
    assert [name for name in values(path) if "gpuwatch_offers" in name or "best_price" in name] == []
