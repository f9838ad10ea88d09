"""Run a row's commands in this process, in a folder of its own, against a marketplace on loopback or none."""

from __future__ import annotations

import io
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.sources.files import write_files
from benchmarks.sources.rows import TESTS, SourceRow, SourceRun
from gpuwatch.cli import run
from gpuwatch.emulator import Marketplace

KEY = "sources-key"
_NOBODY = "http://127.0.0.1:9"  # a port on which nothing listens


class RanRow(msgspec.Struct, frozen=True):
    """What came of a row.

    Attributes:
        faults: a line for each command that failed or printed something else; empty: all is as expected.
        printed: all output.
    """

    row: SourceRow
    faults: tuple[str, ...]
    printed: str
    took_s: float


_PRINTED: dict[bytes, list[tuple[int, str]]] = {}  # rows that ask about one result run their commands once


def run_row(row: SourceRow) -> RanRow:
    """Run the commands of a row, in their order, unless another row has run the same."""
    began = time.perf_counter()
    key = msgspec.json.encode((row.settings, row.files, row.market, [one.command for one in row.runs]))
    if key not in _PRINTED:
        with TemporaryDirectory(prefix="gpuwatch-sources-") as name, _market(row) as url, _environment(Path(name), url):
            write_files(Path(name), row)
            _PRINTED[key] = [run_command(one.command) for one in row.runs]
    found = list(zip(row.runs, _PRINTED[key], strict=True))
    faults = [fault for one, (code, printed) in found for fault in _faults(one, code, printed)]
    shown = [f"$ gpuwatch {one.command}\n{printed}[{code}]" for one, (code, printed) in found]
    return RanRow(row, tuple(faults), "\n".join(shown), time.perf_counter() - began)


def run_command(command: str) -> tuple[int, str]:
    """Run one command; return its exit code and its output, notes included."""
    written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with redirect_stdout(written), redirect_stderr(written):
        code = run(shlex.split(command))
    written.seek(0)
    return int(code), written.read()


def _faults(one: SourceRun, code: int, printed: str) -> Iterator[str]:
    if code != one.code:
        last = (printed.strip().splitlines() or ["no output"])[-1]
        yield f"gpuwatch {one.command}: exit code {code} instead of {one.code}: {last}"
        return
    flat = " ".join(printed.split())
    for text in one.prints:
        if text not in printed and text not in flat:
            yield f"gpuwatch {one.command}: does not print {text!r}"


@contextmanager
def _market(row: SourceRow) -> Iterator[str]:
    if not row.market:
        yield _NOBODY
        return
    with Marketplace(seed=1, key=KEY, size=0) as opened:
        for offer in row.market:
            opened.publish(**offer)
        yield opened.url


@contextmanager
def _environment(folder: Path, url: str) -> Iterator[None]:
    before = dict(os.environ)
    kept = {name: value for name, value in before.items() if not name.startswith(("GPUWATCH_", "XDG_", "VAST_"))}
    os.environ.clear()
    os.environ |= kept | {
        "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config"),
        "COLUMNS": "240",
        "GPUWATCH_DATABASE_URL": f"sqlite:///{folder}/gpuwatch.db",
        "GPUWATCH_PROVIDERS__VASTAI__API_KEY": KEY, "GPUWATCH_PROVIDERS__VASTAI__BASE_URL": url,
        "GPUWATCH_PROVIDERS__VASTAI__SEARCH_INTERVAL": "0.02s",
    }  # fmt: skip
    (folder / "tests").symlink_to(TESTS)
    try:
        with chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ |= before
