"""What failed beside other tests runs once more, alone: `pytest --again-alone`, as `make test` says (decision 0112).

A few failed tests of thousands, most of which share the cores with real daemons, may have met a stall of the machine.
They decide the run if they fail alone, too. Both results are written below the summary.

No test is repeated that saw a wrong number of orders or instances: once is a defect. Nor are more than `MOST` failures,
which no stall explains.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MOST = 3
ABOUT_ORDERS = ("creates", "orders", "faults()", "alive", "instances")  # in the lines of a failed assertion


class Repetition:
    """Collects what failed, and runs it again at the end."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}  # test → the lines of the error
        self.lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failed test, or fixture."""
        if report.failed:
            errors = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
            self.failed[report.nodeid] = self.failed.get(report.nodeid, "") + "\n".join(errors)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Run the failed tests again; the run succeeds if all of them pass."""
        if exitstatus != pytest.ExitCode.TESTS_FAILED or (why := self._why_not()):
            self.lines += [f"not repeated: {why}"] if exitstatus == pytest.ExitCode.TESTS_FAILED else []
            return
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        argv = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", f"--rootdir={session.config.rootpath}"]
        again = subprocess.run(
            [*argv, *self.failed], cwd=session.config.rootpath, env=env, capture_output=True, text=True, check=False
        )
        if again.returncode == 0:
            session.exitstatus = pytest.ExitCode.OK
            self.lines += [f"failed beside others and passed alone: {name}" for name in self.failed]
        else:
            self.lines += ["failed alone, too:", *again.stdout.splitlines()[-200:], *again.stderr.splitlines()[-20:]]

    def _why_not(self) -> str:
        if not 0 < len(self.failed) <= MOST:
            return f"{len(self.failed)} tests failed; at most {MOST} run again"
        for name, errors in self.failed.items():
            if any(word in errors for word in ABOUT_ORDERS):
                return f"{name} saw a wrong number of orders or instances"
        return ""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the lines."""
        for line in self.lines:
            terminalreporter.write_line(line)


def repeat_alone(config: pytest.Config) -> None:
    """Register it in the process that counts the results, if the run asks for it."""
    if config.getoption("--again-alone") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Repetition())
