"""The first session of a newcomer, on a real terminal: from `gpuwatch init` to the first alert, or the first rental.

    python -m tests.process.first_session [--cast FOLDER]

The marketplace and the Bot API are on loopback; the program, its prompts, its daemon and its pace are real. A host
lowers its price once the daemon watches. Prints the session, and its time and typed answers for docs/performance.md.
`--cast` also writes both sessions as asciicasts (asciinema.org/docs), which play at their own speed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuwatch.emulator import Delays, Marketplace
from tests.checkout import ROOT
from tests.process.daemon_child import wait_for
from tests.pty_terminal import PtyTerminal, on_terminal
from tests.telegram_double import TOKEN, TelegramDouble, telegram

OWNER = 5001
ALERT, RENTAL = "first alert", "first rental"
MAX_S, MAX_ANSWERS = 300.0, 30
THINKING_S = 10.0  # assumed for reading a question and typing its answer
_COLUMNS = 80


@dataclass(frozen=True)
class Session:
    """One session: how long the program took, what was typed, and what the terminal showed."""

    goal: str
    program_s: float
    answers: tuple[str, ...]
    events: tuple[tuple[float, str], ...]
    message: str  # the alert

    @property
    def person_s(self) -> float:
        return self.program_s + THINKING_S * len(self.answers)

    @property
    def keystrokes(self) -> int:
        """With Enter; the token and the key are pasted: one each."""
        return sum(1 + (1 if answer in {TOKEN, "demo-key"} else len(answer)) for answer in self.answers)

    @property
    def row(self) -> str:
        cells = (self.goal, f"{self.program_s:.0f} s", len(self.answers), self.keystrokes, f"{self.person_s:.0f} s")
        return f"| {' | '.join(map(str, cells))} |"

    def write_cast(self, folder: Path) -> None:
        head = {"version": 2, "width": _COLUMNS, "height": 40, "title": f"gpuwatch: {self.goal}"}
        lines = [head, *([round(at_s, 3), "o", text] for at_s, text in self.events)]
        name = f"{self.goal.replace(' ', '-')}.cast"
        (folder / name).write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))


def record(goal: str, folder: Path, more: Mapping[str, str] | None = None) -> Session:
    """Play a session in an empty folder.

    Args:
        more: environment in addition, for a quicker pace.
    """
    with Marketplace(seed=7, key="demo-key", size=150, delays=Delays(running_s=2)) as market, telegram() as double:
        double.chats = {str(OWNER)}
        env = {
            "PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8",
            "GPUWATCH_PROVIDERS__VASTAI__BASE_URL": market.url,
            "GPUWATCH_NOTIFY__TELEGRAM__BASE_URL": double.base_url, **(more or {}),
        }  # fmt: skip
        with on_terminal([sys.executable, "-m", "gpuwatch", "init"], folder, env, _COLUMNS) as terminal:
            _answer(terminal, double, goal)
            terminal.wait_for("watching")
            assert not market.ledger.creates
            market.reprice(_steady_offer(market), usd_hour=0.60)
            words = "H100" if goal == ALERT else "running"
            message = wait_for(lambda: next((one.text for one in tuple(double.shown)[2:] if words in one.text), None))
            took_s = terminal.elapsed_s
            assert len(market.ledger.creates) == (goal == RENTAL)
            terminal.interrupt()
    return Session(goal, took_s, tuple(terminal.answers), tuple(terminal.events), message)


def _answer(terminal: PtyTerminal, double: TelegramDouble, goal: str) -> None:
    """Take the defaults wherever there is one."""
    terminal.answer("GPU [H100]:")
    terminal.answer("Planning reserve in percent [20]:")
    terminal.answer("At most, in USD per GPU-hour")
    terminal.answer("alert, ask or rent [alert]:", "" if goal == ALERT else "rent")
    if goal == RENTAL:
        terminal.answer("For how long at most?")
        terminal.answer("Spend real money", "y")
    terminal.answer("Channel [telegram]:")
    terminal.answer("Paste the token", TOKEN)
    terminal.wait_for("waiting for your message")
    (code,) = re.findall(r"start=(\w+)", terminal.seen)
    double.write(f"/start {code}", OWNER)  # the person presses Start
    terminal.answers.append("")  # that press
    terminal.answer("API key of vast.ai", "" if goal == ALERT else "demo-key")
    terminal.answer("Start it now", "y")


def _steady_offer(market: Marketplace) -> int:
    """A verified, reliable host with one H100."""
    return next(
        int(row["id"])
        for row in market.offers()
        if "H100" in str(row["gpu_name"]) and row["num_gpus"] == 1 and row["verification"] == "verified"
        and float(row["reliability2"]) > 0.97 and not row.get("rented")
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cast", type=Path)
    args = parser.parse_args()
    sessions = []
    for goal in (ALERT, RENTAL):
        with TemporaryDirectory() as folder:
            sessions.append(record(goal, Path(folder)))
        print(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", "".join(text for _, text in sessions[-1].events)))
        print(f"--- Telegram ---\n{sessions[-1].message}\n")
        if args.cast is not None:
            sessions[-1].write_cast(args.cast)
    print("| from `gpuwatch init` to | program | typed answers | keystrokes | with 10 s an answer |")
    print("|---|---:|---:|---:|---:|")
    print("\n".join(session.row for session in sessions))


if __name__ == "__main__":
    main()
