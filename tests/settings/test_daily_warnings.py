"""A command prints a warning about the settings once a day; `doctor` always."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.settings.daily_warnings import REPEAT_AFTER_S, due_today

DAY_S = REPEAT_AFTER_S


def at(seconds: float, *texts: str, env: dict[str, str]) -> list[str]:
    return due_today(texts, env, lambda: 1_800_000_000.0 + seconds)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def test_each_text_is_due_once_a_day(env: dict[str, str]) -> None:
    assert at(0, "a", "b", env=env) == ["a", "b"]
    assert at(60, "a", "b", "c", env=env) == ["c"]
    assert at(DAY_S - 1, "a", "c", env=env) == []
    assert at(DAY_S + 1, "a", "c", env=env) == ["a"]
    assert at(DAY_S + 2, "a", env=env) == []


def test_a_command_right_after_another_prints_nothing_again(env: dict[str, str]) -> None:
    assert at(0.6, "a", env=env) == ["a"]
    assert at(0.7, "a", env=env) == []


@pytest.mark.parametrize("step_s", [-DAY_S, DAY_S])
def test_a_step_of_the_clock_silences_nothing_for_longer_than_a_day(env: dict[str, str], step_s: float) -> None:
    at(0, "a", env=env)
    assert at(step_s, "a", env=env) == ["a"]
    assert at(step_s + 60, "a", env=env) == []


def test_without_a_usable_folder_every_text_is_due(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for env in ({"HOME": "no whole path"}, {"XDG_STATE_HOME": str(tmp_path / "file" / "below")}):
        assert [at(0, "a", env=env), at(1, "a", env=env)] == [["a"], ["a"]]


def test_a_damaged_memory_counts_as_empty(env: dict[str, str]) -> None:
    at(0, "a", env=env)
    Path(env["XDG_STATE_HOME"], "gpuwatch", "warnings.bin").write_bytes(b"damaged")
    assert at(1, "a", env=env) == ["a"]


def test_commands_print_the_two_lines_of_lambda_once_and_doctor_always(tmp_path: Path) -> None:
    (tmp_path / "gpuwatch.toml").write_text(
        "[providers.vastai]\nenabled = false\n\n[providers.lambda]\n"
        '\n[[watch]]\nname = "night"\ngpu = ["H100"]\nmax_price = 3.0\naction = "launch"\nproviders = ["lambda"]\n'
        'spot = "only"\n\n[watch.launch]\nimage = "some/image"\n'
    )
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    env = kept | {"HOME": str(tmp_path), "LAMBDA_API_KEY": "not-a-real-key-1234"}

    def printed(command: str) -> list[str]:
        words = [sys.executable, "-m", "gpuwatch", command]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240, check=False)
        return [line for line in done.stderr.splitlines() if line.startswith('watch "night": lambda')]

    assert len(printed("launches")) == 2
    assert printed("alerts") == printed("launches") == printed("providers") == []
    assert len(printed("doctor")) == 2
    assert not list(tmp_path.rglob("*.db"))
