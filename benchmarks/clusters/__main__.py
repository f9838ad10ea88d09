"""Run jobs on several machines by the real daemon through a real dstack server on loopback.

    python -m benchmarks.clusters [--venv FOLDER] [--only WORDS]

Creates a virtual environment with `dstack[server]` if the folder has none. The server rents machines that are local
processes (`dstack_server.py`, `machine.py`), and they run the commands. Each line says what was seen; exit code 1:
something was not as it should be. It takes about half an hour, because a run of gpuwatch may take ten minutes at least,
and needs no key, no Docker and no network but for pip.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.clusters.scenarios import ALONE, SCENARIOS, Facts, without_a_fleet
from benchmarks.clusters.servers import Dstack, Gpuwatch, venv_with_dstack


def main() -> int:
    """Run every scenario in one pair of daemon and server; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters")
    parser.add_argument("--venv", type=Path, default=Path(".venv-dstack"), help="a virtual environment with dstack")
    parser.add_argument("--keep", type=Path, help="an empty folder for databases and logs, which is kept")
    parser.add_argument("--only", default="", help="the scenarios whose name has these words, after the first one")
    given = parser.parse_args()
    chosen = {name: one for name, one in SCENARIOS.items() if one is without_a_fleet or given.only in name}
    with TemporaryDirectory() as temporary:
        folder = (given.keep or Path(temporary)).resolve()
        folder.mkdir(exist_ok=True)
        with (
            Dstack(folder / "dstack", venv_with_dstack(given.venv.absolute())) as dstack,
            Gpuwatch(folder, dstack) as own,
        ):
            facts = Facts(own, dstack)
            print(f"dstack {dstack.version}, {len(chosen)} scenarios", flush=True)
            alone = {name: one in ALONE for name, one in chosen.items()}
            with ThreadPoolExecutor(len(chosen)) as threads:
                results: dict[str, bool] = {}
                for is_alone, names in groupby(chosen, alone.get):
                    named = list(names)
                    if is_alone:
                        results |= {name: _shown(name, chosen[name], facts) for name in named}
                    else:  # each waits for the servers
                        shown = threads.map(lambda name: _shown(name, chosen[name], facts), named)
                        results |= dict(zip(named, shown, strict=True))
            failed = [name for name, is_good in results.items() if not is_good]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} as expected")
    return 1 if failed else 0


def _shown(name: str, scenario: Callable[[Facts], str], facts: Facts) -> bool:
    try:
        said = scenario(facts)
    except (AssertionError, TimeoutError, TypeError, KeyError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        print(f"not as expected: {name}: {where.name}, line {where.lineno}: {where.line}: {error}", flush=True)
        return False
    print(f"as expected: {name}: {said}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
