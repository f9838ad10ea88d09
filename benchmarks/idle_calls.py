"""Where an idle daemon spends its processor time: calls per second of each task, and of its functions.

    python -m benchmarks.idle_calls [--after 22] [--seconds 60] [--size 2000] [--functions 20]

The daemon of `benchmarks.idle` runs in a process whose threads are profiled with `sys.setprofile`. The first 22 s, in
which it starts, are left out; its first sweep takes three minutes. Calls of Python and of C functions count.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.idle import marketplace, settings_toml


class TaskCalls:
    """Counts calls by the task that makes them; calls outside tasks count for their thread."""

    def __init__(self) -> None:
        self.by_task: Counter[str] = Counter()
        self.by_function: Counter[str] = Counter()
        self.active = False
        self._now_in = threading.local()

    def on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        """Handle an event of `sys.setprofile`."""
        if not self.active or event not in {"call", "c_call"}:
            return
        task = getattr(self._now_in, "task", None) or threading.current_thread().name.rstrip("0123456789_-")
        self.by_task[task] += 1
        code = frame.f_code
        name = code.co_qualname if event == "call" else f"{getattr(arg, '__qualname__', arg)} in {code.co_qualname}"
        self.by_function[f"{task} | {Path(code.co_filename).name}: {name}"] += 1

    def watch_tasks(self) -> None:
        """Count the calls of each run for its task."""
        from gpuwatch.daemon.task_progress import PeriodicTask, TaskProgress

        run = TaskProgress.run

        def named(progress: TaskProgress, task: PeriodicTask) -> None:
            self._now_in.task = task.name
            try:
                run(progress, task)
            finally:
                self._now_in.task = None

        setattr(TaskProgress, run.__name__, named)

    def measure(self, after: float, seconds: float, functions: int) -> None:
        """Wait, count for this time, print, end the process."""
        time.sleep(after)
        self.active = True
        time.sleep(seconds)
        self.active = False
        print(f"{sum(self.by_task.values()) / seconds:8,.0f} calls a second")
        for found, most in ((self.by_task, None), (self.by_function, functions)):
            for name, calls in found.most_common(most):
                print(f"{calls / seconds:8,.1f} {name}")
            print(flush=True)
        os._exit(0)


def run_daemon(config: str, after: float, seconds: float, functions: int) -> None:
    """Run the daemon in this process."""
    calls = TaskCalls()
    threading.Thread(target=calls.measure, args=(after, seconds, functions), daemon=True).start()
    threading.setprofile(calls.on_event)
    sys.setprofile(calls.on_event)
    calls.watch_tasks()
    from gpuwatch.cli import run

    run(["--config", config, "run"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--after", type=float, default=22.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--size", type=int, default=2000)
    parser.add_argument("--functions", type=int, default=20)
    parser.add_argument("--config", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.config:
        run_daemon(args.config, args.after, args.seconds, args.functions)
        return
    with tempfile.TemporaryDirectory() as name, marketplace(args.size) as url:
        config = Path(name, "gpuwatch.toml")
        config.write_text(settings_toml(url, Path(name)))
        config.chmod(0o600)
        again = [sys.executable, "-m", "benchmarks.idle_calls", "--config", str(config)]
        options = [f"--after={args.after}", f"--seconds={args.seconds}", f"--functions={args.functions}"]
        subprocess.run([*again, *options], env=os.environ | {"HOME": name}, stderr=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
