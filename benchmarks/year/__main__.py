"""A year old and still light: a store of a year, its commands, its daemon and a large installation, against goals.

    python -m benchmarks.year [NAME]... [--engine sqlite|postgresql] [--part 0.1]

Ten minutes on two processors, for both engines. NAME: store, commands, daemon, installation, prune; none: all. Exit
code 1: a goal is missed. CPU-s are processor time, with the database server's; MB is the highest resident memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from benchmarks.figures import Figure, table
from benchmarks.idle import marketplace
from benchmarks.year import commands, installation
from benchmarks.year.daemon import Daemon, running
from benchmarks.year.market import GPUS, SELLERS, Seller
from benchmarks.year.postgres import PostgresServer, postgres

PARTS = ("store", "commands", "daemon", "installation", "prune")
ENGINES = ("sqlite", "postgresql")
DAEMON_MB, SCRAPE_S, PAGE_S, IDLE_PERCENT = 150.0, 0.5, 0.5, 5.0
STORE_MB = {"sqlite": 1_100.0, "postgresql": 2_500.0}
_SETTLES_S = 45.0
_SCRAPE_EVERY_S = 15.0  # of Prometheus; an answer is given again for a shorter time
_DAEMON_PAGES = ("/market", "/gpu/H100%20SXM", "/watches", "/")
_UNREACHABLE = "http://127.0.0.1:9"
_WATCHES = """
[[watch]]
name = "h100-auto"
gpu = "H100 SXM"
gpu_count = { min = 1, max = 8 }
max_price = "auto"
max_price_cap = 4
deadline = "30d"
[[watch]]
name = "h100"
gpu = "H100 SXM"
max_price = 1.60
[[watch]]
name = "4090"
gpu = "RTX 4090"
max_price = 0.10
[[watch]]
name = "a100"
gpu = "A100 SXM 80GB"
max_price = 0.40
"""


def settings_toml(database_url: str, url: str, sellers: Sequence[Seller] = SELLERS) -> str:
    """Return the settings: these providers, of which only vast.ai can be reached; one watch computes its limit."""
    recorded = ", ".join(f'"{gpu}"' for gpu in list(GPUS)[:6])
    keyless = {"gpuhunt", "pricelist", "aws", "azure", "gcp"}
    sections = [
        f'[providers.{one.name}]\nbase_url = "{url if one.name == "vastai" else _UNREACHABLE}"\n'
        + ("" if one.name in keyless else 'api_key = "demo-key"\n')
        for one in sellers
    ]
    web = '[web]\nenabled = true\nlisten = "127.0.0.1:0"\n'
    return f'database_url = "{database_url}"\n[record]\ngpu = [{recorded}]\n{web}{"".join(sections)}{_WATCHES}'


class YearBenchmark:
    """Measures one engine."""

    def __init__(self, engine: str, folder: Path, server: PostgresServer | None, part: float) -> None:
        self._engine = engine
        self._folder = folder
        self._server = server
        self._server_pid = None if server is None else server.pid
        self._part = part
        self._url = f"sqlite:///{folder / 'year.db'}" if server is None else server.create("year")

    def run(self, names: set[str]) -> Iterator[Figure]:
        """Build the store, and measure these parts."""
        if names - {"installation"}:
            # in a process of its own: the memory of this one counts as that of its children until they begin
            build = [sys.executable, "-m", "benchmarks.year.store", self._url, "--part", str(self._part)]
            subprocess.run(build, check=True)
            if "store" in names:
                yield self._figure("the whole store", STORE_MB[self._engine], self._bytes() / 2**20, " MB")
        if "commands" in names:
            self._write_settings("http://127.0.0.1:9")
            yield from commands.figures(self._engine, self._folder, self._url, self._server_pid)
        if "daemon" in names:
            yield from self._daemon()
        if "prune" in names:
            yield from self._prune()
        if "installation" in names:
            yield from self._installation()

    def _write_settings(self, url: str) -> None:
        file = self._folder / "gpuwatch.toml"
        file.write_text(settings_toml(self._url, url))
        file.chmod(0o600)

    def _bytes(self) -> int:
        if self._server is not None:
            return self._server.size("year")
        return (self._folder / "year.db").stat().st_size

    def _daemon(self) -> Iterator[Figure]:
        with marketplace(installation.OFFERS) as url, self._running(url) as daemon:
            time.sleep(_SETTLES_S)  # the work of its start is not the page's
            yield self._figure("first `/metrics`", SCRAPE_S, daemon.cpu_s_of("/metrics"), " CPU-s")
            time.sleep(_SCRAPE_EVERY_S)
            yield self._figure("later `/metrics`", SCRAPE_S, daemon.cpu_s_of("/metrics"), " CPU-s")
            for path in _DAEMON_PAGES:
                yield self._figure(f"page `{path}`", PAGE_S, daemon.cpu_s_of(path), " CPU-s")
            yield self._figure("daemon with one auto watch, peak", DAEMON_MB, daemon.peak_mb, " MB")

    def _running(self, url: str) -> AbstractContextManager[Daemon]:
        return running(self._folder, settings_toml(self._url, url), self._server_pid)

    def _prune(self) -> Iterator[Figure]:
        """What the owner's command takes; the daemon does the same in small steps."""
        arguments = ("store", "prune", "--keep-days", "90")
        cost = commands.cost_of(arguments, self._folder, self._url, self._server_pid)
        yield self._figure("`gpuwatch store prune --keep-days 90`", commands.READ_MB, cost.peak_mb, " MB")

    def _installation(self) -> Iterator[Figure]:
        url = "" if self._server is None else self._server.create("installation")
        found = installation.measure(url, self._server_pid, installation.QUEUED, 20.0)
        yield self._figure("large installation, idle daemon", IDLE_PERCENT, found.percent, " % of a core")
        for path, cpu_s in found.pages.items():
            yield self._figure(f"large installation, `{path}`", PAGE_S, cpu_s, " CPU-s")

    def _figure(self, name: str, goal: float, measured: float, unit: str) -> Figure:
        return Figure(name=name, goal=goal, measured=measured, unit=unit, sample=self._engine)


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.year", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--part", type=float, default=1.0, help="share of what the providers sell")
    args = parser.parse_args()
    if unknown := set(args.names) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    began_s, found = time.monotonic(), list[Figure]()
    for engine in args.engine or ENGINES:
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            folder = Path(name)
            server = stack.enter_context(postgres(folder)) if engine == "postgresql" else None
            for one in YearBenchmark(engine, folder, server, args.part).run(set(args.names or PARTS)):
                print(table([one]).splitlines()[-1], flush=True)
                found.append(one)
    print(f"\n{time.monotonic() - began_s:.0f} s\n")
    print(table(found))
    return 0 if all(one.holds for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
