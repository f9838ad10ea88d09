"""`gpuwatch init` without a terminal: options and `--yes`, or every setting with `--full`."""

from __future__ import annotations

import pytest

from gpuwatch.domain.watches.watch import Action
from gpuwatch.settings import load
from tests.cli.conftest import Shell


def test_without_a_terminal_and_without_answers_it_says_what_to_add(shell: Shell) -> None:
    ran = shell("init")
    assert (ran.code, ran.out) == (2, "")
    assert "add --gpu H100 --max-price 2.50 --yes, or use --full" in ran.err
    assert not (shell.folder / "gpuwatch.toml").exists()


@pytest.mark.parametrize("action", ["alert", "ask", "launch"])
def test_options_make_a_watch_with_which_every_command_works(shell: Shell, action: str) -> None:
    ran = shell("init", "--gpu", "4090", "--max-price", "0.40", "--action", action, "--yes")
    assert (ran.code, ran.err) == (0, "wrote gpuwatch.toml; next: gpuwatch doctor, then gpuwatch run\n")
    settings = load(cwd=shell.folder)
    (watch,) = settings.watches
    assert (watch.name, watch.action, settings.dry_run) == ("rtx-4090", Action(action), True)
    doctor = shell("doctor")
    assert doctor.code == 0
    assert "FAULT" not in doctor.out
    assert shell("check").code == 1  # an empty market


def test_a_file_stays_without_force(shell: Shell) -> None:
    shell.settings("# mine")
    words = ("init", "--gpu", "4090", "--max-price", "0.40", "--yes")
    ran = shell(*words)
    assert (ran.code, ran.err) == (1, "gpuwatch: gpuwatch.toml already exists; overwrite it with --force\n")
    assert (shell.folder / "gpuwatch.toml").read_text() == "# mine"
    assert shell(*words, "--force").code == 0
    assert 'gpu = "RTX 4090"' in (shell.folder / "gpuwatch.toml").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--yes"], "--yes asks nothing: add --gpu and --max-price"),
        (["--yes", "--gpu", "H10O", "--max-price", "1"], "no GPU is called 'H10O'; did you mean"),
        (["--full", "--gpu", "H100"], "--full writes an example watch"),
    ],
)
def test_answers_that_do_not_fit_are_one_line(shell: Shell, words: list[str], text: str) -> None:
    ran = shell("init", *words)
    assert ran.code == 2
    assert text in ran.err
    assert not (shell.folder / "gpuwatch.toml").exists()
