"""Whether a change of the code lost tests: mutants that an older revision's tests kill, in today's code and tests.

    PYTHONPATH=. python -m benchmarks.mutant_revisions --before REVISION [--seed 1] [--sample 40] [--folder FOLDER]

For the domain and for the path of a launch, on a processor each: the older tree draws a sample of its own code and
runs its own tests on it. Each mutant that they kill is looked for in this tree, as the same text in the function of the
same name, in any file, and this tree's tests run on it. Printed are those that survive now, and those whose code is
gone. Exit code 1: some survive.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.mutants import identity, mutants_of


class Area(NamedTuple):
    """Code, and the tests that run on it."""

    name: str
    places: tuple[str, ...]
    tests: tuple[str, ...]


AREAS = (
    Area("domain", ("gpuwatch/domain",), ("tests/domain",)),
    Area(
        "launch path",
        ("gpuwatch/engine/launches", "gpuwatch/engine/watches", "gpuwatch/storage/launches"),
        ("tests/engine/launches", "tests/engine/watches", "tests/storage/launches"),
    ),
)


class Outcome(NamedTuple):
    """The mutants of an area, as rows of the reports."""

    before: list[dict[str, Any]]
    after: list[dict[str, Any]]

    def killed(self) -> list[dict[str, Any]]:
        """Those that the older tests kill."""
        return [row for row in self.before if row["verdict"] == "killed"]

    def survivors(self) -> list[dict[str, Any]]:
        """Those of today's code that survive although the older tests killed them.

        Where a function has the same text several times, it must be the same one of them.
        """
        killed = {(identity(row), row["nth"]) for row in self.killed()}
        return [row for row in self.after if row["verdict"] == "survived" and (identity(row), row["nth"]) in killed]

    def gone(self) -> list[dict[str, Any]]:
        """Those killed before whose code is not in this tree any more."""
        found = {identity(row) for row in self.after}
        return [row for row in self.killed() if identity(row) not in found]


def compare(area: Area, old_tree: Path, folder: Path, seed: int, sample: int) -> Outcome:
    """Run an area in both trees, one after the other."""
    before, after = (folder / f"{area.name.replace(' ', '-')}-{when}.jsonl" for when in ("before", "after"))
    _mutants(old_tree, area, before, ["--seed", str(seed), "--sample", str(sample), *area.places])
    _mutants(Path.cwd(), area, after, ["--again", str(before), "--verdict", "killed"])
    return Outcome(_numbered(before, old_tree), _numbered(after, Path.cwd()))


def _numbered(report: Path, tree: Path) -> list[dict[str, Any]]:
    """Return the rows of a report, each with its number among the changes of the same text in its function."""
    rows = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    for row in rows:
        same = [one for one in mutants_of(tree / row["file"]) if identity(asdict(one)) == identity(row)]
        row["nth"] = [one.node for one in same].index(row["node"])
    return rows


def _mutants(tree: Path, area: Area, report: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-m", "benchmarks.mutants", "--report", str(report)]
    command += ["--map", str(report.with_suffix(".map.json")), *arguments, "--tests", *area.tests]
    with report.with_suffix(".log").open("a") as log:
        env = os.environ | {"PYTHONPATH": str(tree)}
        subprocess.run(command, cwd=tree, env=env, stdout=log, stderr=log, check=True)


def unpacked(revision: str, folder: Path) -> Path:
    """Write a revision's files; return their folder."""
    packed = subprocess.run(["git", "archive", revision], capture_output=True, check=True).stdout
    tree = folder / "before"
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(tree, filter="data")
    return tree


def main() -> int:
    """Print the counts and the mutants to look at."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--before", required=True, metavar="REVISION")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=40, help="mutants of each area")
    parser.add_argument("--folder", type=Path, help="for the reports; a run on the same code continues them")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        old_tree = unpacked(args.before, Path(scratch))
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(lambda area: compare(area, old_tree, folder, args.seed, args.sample), AREAS))
    for area, outcome in zip(AREAS, found, strict=True):
        killed, survivors, gone = outcome.killed(), outcome.survivors(), outcome.gone()
        print(f"{area.name}: {len(outcome.before)} mutants before, {len(killed)} killed; of those {len(gone)} are gone")
        for verdict, rows in (("survives now", survivors), ("gone", gone)):
            for row in rows:
                print(f"  {verdict}: {row['file']}:{row['line']} {row['function']}: {row['before']} → {row['after']}")
    return 1 if any(outcome.survivors() for outcome in found) else 0


if __name__ == "__main__":
    sys.exit(main())
