"""`gpuwatch --help`, and the help of every command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gpuwatch.cli import main
from gpuwatch.cli.base import Command, Group
from gpuwatch.cli.commands import SECTIONS
from tests.cli.conftest import Shell


def _help(word: str, **env: str) -> str:
    clean = {"PATH": os.defpath, "HOME": "/nonexistent", **env}
    command = [sys.executable, "-m", "gpuwatch", word]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=240, check=True).stdout


def test_a_narrow_terminal_gets_narrow_help() -> None:
    assert max(map(len, _help("--help", COLUMNS="60").splitlines())) <= 60


def test_a_reader_that_has_had_enough_is_no_fault(tmp_path: Path) -> None:
    """`gpuwatch config schema | head`: the other end of the pipe is closed before any output."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        command = [sys.executable, "-m", "gpuwatch", "config", "schema"]
        ran = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, cwd=tmp_path, timeout=240, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


# --- every command ----------------------------------------------------------------------------------------------------


def commands(group: Group, *before: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command and subcommand, with its words on the command line."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        assert found is not None
        yield (*before, name), found
        if isinstance(found, Group):
            yield from commands(found, *before, name)


ALL = list(commands(main))  # type: ignore[arg-type] it is a Group


def _called(words: list[str]) -> click.Command:
    """Return the command that an example runs."""
    found: click.Command = main
    for word in words:
        inner = found.get_command(click.Context(found), word) if isinstance(found, Group) else None
        if inner is None:
            break
        found = inner
    return found


def test_the_commands_stand_in_groups() -> None:
    assert list(SECTIONS) == ["Watch", "Market", "Rent", "Setup"]
    assert len(main.entries) == sum(len(section) for section in SECTIONS.values())


def test_the_help_fits_a_screen() -> None:
    in_sections = _help("--help").partition("\nWatch:\n")[2].partition("\nExamples:\n")[0]
    shown = [line for line in in_sections.splitlines() if line.startswith("  ")]
    assert len(shown) <= 26
    assert [line.split()[0] for line in shown] == list(main.entries)


@pytest.mark.parametrize(("words", "command"), ALL, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_every_command_has_examples_whose_options_exist(words: tuple[str, ...], command: click.Command) -> None:
    assert isinstance(command, Command | Group)
    assert command.examples, f"gpuwatch {' '.join(words)}"
    for example in command.examples:
        program, *called = shlex.split(example, comments=True)
        assert program == "gpuwatch"
        run = _called(called)
        known = {flag for param in (*run.params, *main.params) for flag in param.opts} | {">", "--"}
        assert {word for word in called if word.startswith("--")} <= known, example
        assert set(words) <= set(called) or run is command, example


@pytest.mark.parametrize(("words", "command"), ALL, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_every_option_says_what_it_is(words: tuple[str, ...], command: click.Command) -> None:
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    assert [param.opts for param in options if not param.help] == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("chek", "check"), ("offer", "offers"), ("lauches", "launches"), ("plan sise", "size"), ("db stat", "stats")),
        *(("stpo", "launches stop"), ("rehears", "watches rehearse"), ("backup", "store backup")),
        *(("approval", "approvals"), ("launches stpo", "stop"), ("jobs sumbit", "submit")),
    ],
)
def test_a_mistyped_command_gets_a_suggestion(shell: Shell, typed: str, meant: str) -> None:
    ran = shell(*typed.split())
    assert ran.code == 2
    assert "Did you mean" in ran.err
    assert meant in ran.err


def test_a_word_that_is_near_nothing_gets_none(shell: Shell) -> None:
    ran = shell("xyzzy")
    assert ran.err == "gpuwatch: No such command 'xyzzy'. See: gpuwatch --help\n"
