"""What tests set from outside the process, all of it here; without the variables everything is inactive.

`GPUWATCH_TEST_PACE=60` turns a minute of waiting into a second; `GPUWATCH_TEST_KEEPER_AFTER=1` lets the keeper act
after a second. `GPUWATCH_TEST_LEADS=1` lets a daemon lead whatever the lease says, so that several race.
`GPUWATCH_FAILPOINT` names a point at which a crash test kills, delays or stops the process:

`GPUWATCH_FAILPOINT=launch.after_send` ends the process there; `…:3` at the third pass; `…@ACTION` does something
else: `exit` (default: no clean-up, exit code 86), `kill` (SIGKILL to itself), `stop` (SIGSTOP to itself, until
somebody continues it), `sleep2.5` (seconds), `raise8` (a RuntimeError at this pass and the next seven). All but the
last write `failpoint NAME` to stderr first, so that a test knows where the process ended.
"""

from __future__ import annotations

import os
import signal
import time

DIED = 86  # the exit code

# All points. `tests/process/crash_matrix.py` kills a daemon at each of them.
POINTS = {
    "intent.before_commit": "launch, decision and alert are written, the transaction is open",
    "intent.after_commit": "they are durable, nothing has been sent",
    "launch.before_look": "next: the last check before the order is sent",
    "launch.before_send": "next: the order is sent",
    "launch.after_send": "the provider's answer was read but not stored",
    "launch.no_answer": "there was no usable answer, and that is not stored",
    "launch.after_record": "the provider's answer is stored",
    "reconcile.listed": "the instances were listed, no launch was advanced",
    "launch.before_destroy": "next: the destroy request is sent",
    "launch.after_destroy": "the provider accepted the destroy request",
    "series.before_advance": "the run of a recurring job is written, its next time is not",
    "move.before_stop": "a job's move is stored, its command still runs",
    "move.before_record": "its command ended for the move, and that is not stored",
    "move.before_end": "its run is over, its instance is not asked to end",
    "prepare.before_record": "a job's data is here and the machine that prepared it is gone, and that is not stored",
    "prepare.after_record": "that is stored, and nothing was done about the machine of the job itself",
    "launch.before_halt": "next: the request is sent that stops an instance and keeps its disk",
    "launch.after_halt": "the provider accepted that request",
    "launch.before_resume": "next: the request is sent that starts a stopped instance again",
    "launch.after_resume": "the provider answered that request",
    "alert.leased": "alerts were leased but not sent",
    "alert.sent": "a channel accepted an alert, and that is not stored",
    "alert.marked": "the delivery is stored",
    # a transition of a launch, by the state that it leads to
    **{
        f"{state}.{moment}_record": f"a launch becomes {state}: {moment} that is stored"
        for state in ("starting", "running", "stopping", "ended", "failed", "unknown", "held")
        for moment in ("before", "after")
    },
}

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_passes: dict[str, int] = {}


def pace() -> float:
    """Return by what factor waits are shortened."""
    return float(os.environ.get("GPUWATCH_TEST_PACE") or 1)


def keeper_after_s(plain_s: float) -> float:
    """Return how long after its end the keeper ends an instance."""
    return float(os.environ.get("GPUWATCH_TEST_KEEPER_AFTER") or plain_s)


def leads_always() -> bool:
    """Whether this daemon leads without a lease."""
    return bool(os.environ.get("GPUWATCH_TEST_LEADS"))


def failpoint(name: str) -> None:
    """Perform the action that the variable sets for this point, if any."""
    wanted = os.environ.get("GPUWATCH_FAILPOINT")
    if not wanted:
        return
    place, _, action = wanted.partition("@")
    point, _, nth = place.partition(":")
    if name not in POINTS:
        raise LookupError(f"{name} is not in POINTS")
    if point != name:
        return
    _passes[name] = _passes.get(name, 0) + 1
    first = int(nth or 1)
    if action.startswith("raise"):
        if first <= _passes[name] < first + int(action.removeprefix("raise")):
            raise RuntimeError(f"failpoint {name}")
    elif _passes[name] == first:
        os.write(2, f"failpoint {name}\n".encode())
        _act(action or "exit")


def _act(action: str) -> None:
    if action in _SIGNALS:
        os.kill(os.getpid(), _SIGNALS[action])
        time.sleep(0.5)  # a signal to the process reaches this thread slightly later
    elif action.startswith("sleep"):
        time.sleep(float(action.removeprefix("sleep")))
    else:
        os._exit(DIED)
