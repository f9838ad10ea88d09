"""The tutorial: its commands run in order, and its advice on the file gives a valid job."""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator

import pytest

from gpuwatch.cli import Exit
from gpuwatch.emulator import Marketplace
from tests.checkout import ROOT
from tests.cli.conftest import SERIES, Shell

PAGE = ROOT / "docs/tutorial-qlora.md"
ELSEWHERE = {
    ("demo", "--jobs"): "tests/process/test_demo_jobs.py runs it",
    ("init", "--full"): "this test has settings, with the embedded marketplace in them",
    ("run",): "a service; the demo runs it",
    ("doctor",): "asks the real services",
    ("jobs", "logs", "-f", "qlora-8b"): "follows for ever",
}


@pytest.fixture(scope="module")
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=1, key="demo-key", size=600, odd_rows=False) as opened:
        yield opened


def commands() -> list[tuple[str, ...]]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    # the time left until a Sunday decides what is feasible: on a Sunday evening nothing is
    return [tuple("6d" if word == "Sunday" else word for word in shlex.split(line)[1:]) for line in lines]


def keys_advised() -> str:
    """Return the first column of the table in step 3, as lines of a job file."""
    found = re.findall(r"^\| `([a-z_]+ = [^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(found) == 6
    return "\n".join(found) + "\n"


@pytest.mark.slow
def test_each_command_of_the_tutorial_runs_in_its_order(shell: Shell, market: Marketplace) -> None:
    shell.settings(
        'database_url = "sqlite:///prices.db"\n[providers.vastai]\napi_key = "demo-key"\n'
        f'base_url = "{market.url}"\nsearch_interval = "0.02s"\n'
    )
    shutil.copyfile(SERIES, shell.folder / "prices.csv.gz")
    left_out = []
    for words in commands():
        if words in ELSEWHERE:
            left_out.append(words)
            continue
        ran = shell(*words)
        # the public series has no price that all policies could have used, and the command reports that
        expected = Exit.CANNOT_TELL if words[:2] == ("jobs", "simulate") else Exit.DONE
        assert ran.code == expected, (words, ran.out, ran.err)
        if expected is Exit.CANNOT_TELL:
            assert "compared: 0 that every policy ran; excluded: 16 without known prices" in ran.out
        if words[:2] == ("jobs", "new"):
            advised(shell)
    assert sorted(left_out) == sorted(ELSEWHERE)


def advised(shell: Shell) -> None:
    """Step 3: complete the file as the page explains."""
    path = shell.folder / "jobs/qlora-8b.toml"
    (path.parent / "data").mkdir()
    (path.parent / "train.py").write_text("print('step 1/1')\n")
    table, resources = path.read_text().split("[resources]")
    kept = [line for line in table.splitlines() if not line.startswith("retries")]
    path.write_text("\n".join(kept) + "\n" + keys_advised() + "[resources]" + resources + 'spot = "any"\n')
    assert {"inputs", "results", "checkpoint", "pilot", "active", "retries"} <= tomllib.loads(path.read_text()).keys()
