"""Warnings at the start."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.daemon.tasks import start_up_warnings
from gpuwatch.settings import load


def warnings(folder: Path, text: str) -> list[str]:
    file = folder / "gpuwatch.toml"
    file.write_text(text)
    file.chmod(0o600)
    return list(start_up_warnings(load(str(file))))


WATCH = '[[watch]]\nname = "h100"\ngpu = "H100"\nmax_price = 2\n'
CHANNEL = '[notify.apprise]\nurls = ["json://127.0.0.1"]\n'


def test_complete_settings_have_none(tmp_path: Path) -> None:
    assert warnings(tmp_path, CHANNEL + WATCH) == []


def test_a_plan_that_cannot_keep_poll_every_is_named_with_its_figure(tmp_path: Path) -> None:
    gpus = ("H100 SXM", "A100 SXM 80GB", "RTX 4090", "L40S", "RTX 3090", "L4", "T4", "A10", "A40", "V100 16GB")
    many = "".join(f'[[watch]]\nname = "w {gpu}"\ngpu = "{gpu}"\nmax_price = 2\n' for gpu in gpus)
    (text,) = warnings(tmp_path, CHANNEL + many)
    assert "vastai: poll_every = 30 s is too short" in text
    assert "10 queries, 6 s apart" in text
    assert "after up to 75 s" in text


def test_without_a_channel_one_line_says_what_to_add(tmp_path: Path) -> None:
    (text,) = warnings(tmp_path, WATCH)
    assert "[notify.telegram]" in text
    assert "gpuwatch alerts test" in text


def test_without_a_watch_one_line_names_the_file_and_what_is_recorded(tmp_path: Path) -> None:
    (nothing,) = warnings(tmp_path, CHANNEL)
    assert str(tmp_path / "gpuwatch.toml") in nothing
    assert "no marketplace" in nothing
    (recorded,) = warnings(tmp_path, CHANNEL + '[record]\ngpu = ["T4", "L4"]\n')
    assert "gpuwatch only records the prices of T4, L4" in recorded
