"""The tutorials "tell me" and "rent for me": each command that they show runs, in their order, on the emulator.

`docs/tutorial-qlora.md` has tests/cli/test_tutorial.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.checkout import ROOT
from tests.process.daemon_child import wait_for
from tests.process.fork_server import ForkedProcess, start_gpuwatch
from tests.telegram_double import TelegramDouble, telegram

pytestmark = pytest.mark.slow

CHAT, TOKEN = "123456789", "8123456789:AAH-your-token"  # as the page writes them
_BLOCK = re.compile(r"(?ms)^## (?:\d\. )?(.+?)$|^```(\w+)\n(.*?)^```")


class Reader:
    """Somebody who follows a page in a folder of their own."""

    def __init__(self, folder: Path, market: Marketplace) -> None:
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1",
            "GPUWATCH_PROVIDERS__VASTAI__BASE_URL": market.url, "GPUWATCH_PROVIDERS__VASTAI__SEARCH_INTERVAL": "0s",
            "GPUWATCH_PROVIDERS__VASTAI__POLL_EVERY": "1s",
        }  # fmt: skip

    def types(self, line: str) -> str:
        """Run one line of the page, which must succeed; return its output."""
        words = shlex.split(line)
        if words[0] != "gpuwatch":
            subprocess.run(["/bin/sh", "-c", line], cwd=self.folder, timeout=240, check=True)
            return ""
        with TemporaryFile() as out:
            child = start_gpuwatch(words[1:], self.folder, self.env, stderr=out, stdout=out)
            try:
                code = child.wait(timeout=120)
            finally:
                child.kill()
            out.seek(0)
            shown = out.read().decode()
        assert code == 0, f"{line}\n{shown}"
        return shown

    @contextmanager
    def runs(self) -> Iterator[ForkedProcess]:
        """The daemon, ended by Ctrl-C."""
        with (self.folder / "log.txt").open("ab") as log:
            child = start_gpuwatch(["run"], self.folder, self.env, stderr=log)
        try:
            yield child
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=240) in {0, 130}
        except BaseException as error:
            error.add_note(self.log())
            raise
        finally:
            child.kill()

    def log(self) -> str:
        path = self.folder / "log.txt"
        return path.read_text() if path.exists() else ""

    def launches(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(self.types("gpuwatch launches --json") or "[]")
        return found


def steps(page: str) -> dict[str, list[str]]:
    """Return heading → lines to type there; a settings file is one line, `toml` and its text."""
    found: dict[str, list[str]] = {}
    heading = ""
    for title, kind, text in _BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        heading = title or heading
        lines = found.setdefault(heading, [])
        if kind == "toml":
            lines.append(f"toml\n{text}")
        elif kind == "sh":
            lines += text.splitlines()
    return {heading: lines for heading, lines in found.items() if lines}


def follow(reader: Reader, lines: list[str], run: Callable[[], None], launch: str = "") -> None:
    """Do what a step says; `gpuwatch run` is `run`."""
    for line in lines:
        if line.startswith("toml\n"):
            (reader.folder / "gpuwatch.toml").write_text(line.removeprefix("toml\n"))
        elif line == "gpuwatch run":
            run()
        else:
            reader.types(line.replace("LAUNCH", launch))


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=5, key="your-key", size=20, delays=Delays(running_s=0.3)) as opened:
        opened.publish(gpu="H100 SXM", count=1, usd_hour=1.5, reliability2=0.99, verified=True)
        yield opened


def test_tell_me_when_it_is_cheap(market: Marketplace, tmp_path: Path) -> None:
    page = steps("tutorial-alert.md")
    assert list(page) == [
        "What does it cost now?", "Write the settings", "Does it reach you?", "Start it", "While it runs"
    ]  # fmt: skip
    with telegram() as double:
        double.token, double.chats = TOKEN, {CHAT}
        reader = Reader(tmp_path, market)
        follow(reader, page["What does it cost now?"], run=_never)
        asked, shown, *secrets = page["Write the settings"]
        reader.types(asked)
        written = tomllib.loads((tmp_path / "gpuwatch.toml").read_text())
        assert written == {k: v for k, v in tomllib.loads(shown.removeprefix("toml\n")).items() if k != "notify"}
        reader.env["GPUWATCH_NOTIFY__TELEGRAM__BASE_URL"] = double.base_url
        follow(reader, [shown, *secrets], run=_never)
        follow(reader, page["Does it reach you?"], run=_never)
        assert [one.text for one in double.shown if "test" in one.text.lower()]
        assert page["Start it"] == ["gpuwatch run"]
        with reader.runs():
            wait_for(lambda: _alert_of(double))
            follow(reader, page["While it runs"], run=_never)
        assert "Listed: $1.50/GPU-h" in _alert_of(double)


def _alert_of(double: TelegramDouble) -> str:
    return next((one.text for one in double.shown if one.text.startswith("h100:")), "")


def test_rent_for_me_with_a_limit(market: Marketplace, tmp_path: Path) -> None:
    page = steps("tutorial-rent.md")
    assert list(page) == ["The settings", "Rehearse", "For real", "While it runs", "The end"]
    reader = Reader(tmp_path, market)

    def dry_run() -> None:
        with reader.runs():
            wait_for(lambda: "would" in reader.log())

    follow(reader, page["The settings"], run=_never)
    follow(reader, page["Rehearse"], run=dry_run)
    assert market.instances() == []
    settings = tmp_path / "gpuwatch.toml"
    settings.write_text(re.sub(r"dry_run = true .*", "dry_run = false", settings.read_text()))
    *before, run = page["For real"]
    assert run == "gpuwatch run"
    follow(reader, before, run=_never)
    with reader.runs():
        wait_for(lambda: "running" in [one["state"] for one in reader.launches()])
        launch = next(one["launch_id"] for one in reader.launches() if one["state"] == "running")
        follow(reader, page["While it runs"], run=_never, launch=launch)
        follow(reader, page["The end"], run=_never, launch=launch)
    (real,) = [one for one in reader.launches() if not one["dry_run"]]
    assert real["state"] == "ended"
    assert market.instances() == []


def _never() -> None:
    pytest.fail("this step starts no daemon")
