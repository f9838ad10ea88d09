"""A `dstack` that stores its runs in a file: its answers have the recorded form of dstack 0.22.5.

As there: a name has one run; `apply -y` of the same task under the name of an active run changes nothing; with another
task it stops and replaces that run; after the end of a run it submits a new one.

`faults.json` beside its runs sets faults by command: `hang` (does it, never answers), `deaf` (never answers, does
nothing), `lost` (does it, reports a failure), `down` (reports that there is no server), `garbage`, `refused`.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parents[1] / "recorded" / "dstack" / "ps-0.22.5.json"
OVER = {"terminated", "failed", "done"}


class DstackDouble:
    """The server of the program, for both sides: the program itself and the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self) -> Path:
        """Write the program; returns its path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "dstack"
        path.write_text(f'#!/bin/sh\nDSTACK_DOUBLE={self.folder} exec {sys.executable} -S {__file__} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    @contextmanager
    def runs(self) -> Iterator[dict[str, Any]]:
        """Its runs by name; changes are stored."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.folder / "runs.json"
            found = json.loads(path.read_text()) if path.exists() else {}
            yield found
            path.write_text(json.dumps(found))

    def set(self, name: str, status: str, **changed: Any) -> None:
        """Advance a run; also sets `price` of each machine, `exit_status`, `reason` and `cost`."""
        with self.runs() as runs:
            run = runs[name]
            run["status"] = status
            run["cost"] = changed.get("cost", run["cost"])
            for job in run["jobs"]:
                last = job["job_submissions"][-1]
                last["status"] = status
                last["exit_status"] = changed.get("exit_status")
                last["termination_reason"] = changed.get("reason")
                last["termination_reason_message"] = changed.get("message")
                if (price := changed.get("price")) is not None:
                    last["job_provisioning_data"] = {"backend": "vastai", "region": "x", "price": price}

    def all(self) -> list[dict[str, Any]]:
        """Return every run, newest first."""
        with self.runs() as runs:
            return sorted(copy.deepcopy(list(runs.values())), key=lambda one: str(one["submitted_at"]), reverse=True)

    def calls(self, word: str = "") -> list[list[str]]:
        """Return the calls so far."""
        path = self.folder / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [one for one in map(json.loads, lines) if not word or one[0] == word]

    def made(self) -> list[str]:
        """Return the names of all submitted runs, one entry per run."""
        path = self.folder / "made.txt"
        return path.read_text().split() if path.exists() else []

    def faults(self, **by_command: str) -> None:
        """Set the faults from now on."""
        (self.folder / "faults.json").write_text(json.dumps(by_command))

    # --- the program's side -------------------------------------------------------------------------------------------

    def fault(self, command: str) -> str:
        path = self.folder / "faults.json"
        return str(json.loads(path.read_text()).get(command, "")) if path.exists() else ""

    def apply(self, task: dict[str, Any]) -> str:
        name = task["name"]
        with self.runs() as runs:
            before = runs.get(name)
            if before is not None and before["status"] not in OVER:
                if before["task"] == task:
                    return "Active run already exists. Detected no changes.\nUse --force to apply anyway."
                self._note("overridden.txt", name)
            runs[name] = _new_run(task)
        self._note("made.txt", name)
        return f"Run {name} submitted, detaching..."

    def stop(self, name: str) -> str | None:
        with self.runs() as runs:
            if name not in runs:
                return None
            if runs[name]["status"] not in OVER:
                runs[name]["status"] = "terminating" if self.fault("end") == "never" else "terminated"
                runs[name]["termination_reason"] = "stopped_by_user"
        return "Stopped"

    def _note(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(line + "\n")

    def note_call(self, words: list[str]) -> None:
        self._note("calls.jsonl", json.dumps([*words, {key: "" for key in os.environ if key != "DSTACK_DOUBLE"}]))


def _new_run(task: dict[str, Any]) -> dict[str, Any]:
    recorded = json.loads(RECORDED.read_text())["runs"][0]
    now = datetime.fromtimestamp(time.time(), UTC).isoformat()
    machine = recorded["jobs"][0]
    machine["job_submissions"][0] |= {"status": "submitted", "termination_reason": None, "finished_at": None}
    configuration = recorded["run_spec"]["configuration"] | {
        "name": task["name"], "nodes": task["nodes"], "max_price": task["max_price"], "commands": task["commands"],
    }  # fmt: skip
    return {
        **recorded,
        "submitted_at": now,
        "status": "submitted",
        "termination_reason": None,
        "cost": 0.0,
        "run_spec": recorded["run_spec"] | {"run_name": task["name"], "configuration": configuration},
        "jobs": [copy.deepcopy(machine) for _ in range(task["nodes"])],
        "task": task,
    }


def main(words: list[str]) -> int:
    """Run the program."""
    double = DstackDouble(Path(os.environ["DSTACK_DOUBLE"]))
    given = sys.stdin.read() if words[0] == "apply" else ""
    double.note_call(words)
    fault = double.fault(words[0])
    if fault == "deaf":
        time.sleep(3600)
    if fault == "down":
        print("Failed to connect to dstack server http://127.0.0.1:3000")
        return 1
    if fault == "refused":
        print("Error: the configuration is wrong")
        return 1
    code, said = answer(double, words, given)
    if fault == "hang":
        time.sleep(3600)
    if fault == "lost":
        print("Error: the connection was reset")
        return 1
    print('{"project": "main", "runs": [{' if fault == "garbage" else said)
    return code


def answer(double: DstackDouble, words: list[str], given: str) -> tuple[int, str]:
    if words[0] == "apply":
        assert words[1:] == ["-f", "-", "-y", "-d"], words
        return 0, double.apply(json.loads(given))
    if words[0] == "ps":
        runs = double.all()
        shown = runs[: int(words[words.index("--last") + 1])] if "--all" in words else [
            run for run in runs if run["status"] not in OVER
        ]  # fmt: skip
        project = "other" if double.fault("project") == "other" else "main"
        return 0, json.dumps({"project": project, "runs": shown})
    if words[:2] == ["run", "get"]:
        found = [one for one in double.all() if one["run_spec"]["run_name"] == words[2]]
        return (0, json.dumps(found[0])) if found else (1, f"Run {words[2]} not found")
    assert words[:2] == ["stop", "-y"], words
    ended = double.stop(words[2])
    return (0, ended) if ended else (1, f"Run {words[2]} not found")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
