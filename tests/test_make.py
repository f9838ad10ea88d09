"""The Makefile and .ci/run agree with README.md and CONTRIBUTING.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.checkout import ROOT


def _make(*words: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=240, check=False
    )  # fmt: skip


def test_every_target_that_the_documents_name_is_there() -> None:
    there = set(re.findall(r"(?m)^make (\w+)", _make("help").stdout))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        target for page in documents for target in re.findall(r"(?:`|^)make (\w+)", page.read_text(), re.MULTILINE)
    }
    assert {"demo", "test", "check", "golden", "lock"} <= named
    assert named <= there


def test_an_unfit_interpreter_is_refused_in_one_line() -> None:
    done = _make("python", "PYTHON=/bin/false")
    assert done.returncode == 2
    assert "Python 3.11 or newer" in done.stderr
    assert _make("python", f"PYTHON={sys.executable}").returncode == 0


def test_ci_runs_the_test_command_of_the_readme_and_nothing_after_it() -> None:
    commands = re.findall(r"(?m)^(make \w+)", (ROOT / "README.md").read_text())
    assert commands == ["make demo", "make test"]
    script = (ROOT / ".ci/run").read_text()
    assert re.findall(r"(?m)^\s*(make .*)$", script) == ["make test"]
    assert script.endswith("\nmake test\n")
    assert "set -euo pipefail" in script


def test_the_documents_are_published_as_they_are_built_here() -> None:
    workflow = (ROOT / ".github/workflows/docs.yml").read_text()
    assert re.findall(r"(?m)- run: (.*)$", workflow) == ["make docs"]
    assert "path: site" in workflow
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text()


def test_every_package_is_installed_by_its_hash() -> None:
    """The project itself is the only exception: it has no hash, and no further files."""
    makefile = (ROOT / "Makefile").read_text()
    recipes = [line for line in makefile.splitlines() if line.startswith("\t")]
    by_pip = [line for line in recipes if "$(PIP_INSTALL)" in line]
    by_uv = [line for line in recipes if "uv pip install" in line]
    of_locks = [line for line in recipes if "$(call INSTALL_LOCKED" in line]
    assert (len(by_pip), len(by_uv), len(of_locks)) == (3, 1, 2)
    assert [line for line in by_pip + by_uv if "--require-hashes" not in line] == []
    assert [line for line in by_uv if "--only-binary :all:" not in line] == []
    assert re.findall(r"(?m)^PIP_INSTALL := .*--only-binary :all:", makefile)
    assert [line for line in of_locks if ",-r requirements/" not in line] == []
    assert [line for line in by_pip if not re.search(r"-r requirements/|--no-deps \$\(2\)", line)] == []
    assert re.findall(r"(?m)^INSTALL_PROJECT := .*--no-deps --no-build-isolation", makefile)
