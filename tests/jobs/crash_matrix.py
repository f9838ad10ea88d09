"""gpuwatch dies before and after each write and request for a job, while a fault hits the machine.

`make test` runs a sample, `make soak` all: an hour.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.domain.jobs.job import Job, JobState
from gpuwatch.domain.jobs.job_values import CheckpointSpec, JobFiles, JobLimit, PilotSpec
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.launch_spec import JobRelocateSpec, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.jobs.job_parts import JobParts
from tests.builders import a_match, an_offer, changed, seen_at
from tests.jobs.job_world import WATCH, JobWorld, kill

# "moves": its pilot exceeds a limit, and it moves to a faster GPU; "shares": another job takes over its instance;
# "relocates": a machine like its own is cheaper, and it moves there
FAULTS = ("none", "host vanishes", "runner killed", "notice", "network drops", "moves", "shares", "relocates")
POINTS_MAX = 130  # of a world; of more, from its beginning and its end: the rest asks again while the network is away
# Every start writes a line with its first step, and looks for other running commands of the job.
COMMAND = (
    'W=../../../../..; mkdir -p $W/pids; echo "$GPUWATCH_JOB-$GPUWATCH_RUN" >> $W/starts; for f in $W/pids/*; do'
    " [ -e $f ] && grep -q '^State:.[^ZX]' /proc/${f##*/}/status 2>/dev/null && echo twice >> $W/twice; done;"
    " touch $W/pids/$$; trap 'exit 143' TERM; mkdir -p ckpt out;"
    ' n=0; [ -n "${GPUWATCH_CHECKPOINT:-}" ] && n=$(cat "$GPUWATCH_CHECKPOINT"); echo "$GPUWATCH_RUN $n" >> $W/begins;'
    " while [ $n -lt 10 ]; do n=$((n+1)); echo $n > ckpt/.n; mv ckpt/.n ckpt/s$n; sleep 0.1; done; echo $n > out/n.txt"
)
# its first run makes one step of ten thousand, until it is ended
SLOW_AT_FIRST = COMMAND.replace(
    " while [",
    ' [ "$GPUWATCH_RUN" != 1 ] || { echo 1 > ckpt/s1; echo step 1/10000; while :; do sleep 0.1; done; }; while [',
)

_FASTER = a_match(an_offer(gpu="H100 SXM", quoted_usd_hour=0.001), commission="0")
_CHEAPER = a_match(an_offer(gpu="H100", spot=True, quoted_usd_hour=0.5), commission="0")
_RELOCATE = JobRelocateSpec(action="move", after_s=0.0, max_per_day=1)


_RENTED = changed(WATCH, action=Action.LAUNCH, launch=LaunchSpec(max_total=0))


class Killed(BaseException):
    """gpuwatch was killed here."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One world: where it died, its fault, and what is wrong with its end; empty: nothing."""

    point: int
    after: bool
    fault: str
    died_at: str
    passed: int
    resumed: bool
    wrong: tuple[str, ...]


class _Deadly:
    """Forwards every call, and dies before or after the nth one that changes something."""

    def __init__(self, inner: Any, matrix: _Matrix, names: tuple[str, ...]) -> None:
        self._inner, self._matrix, self._names = inner, matrix, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._names:
            return found

        def called(*args: Any, **more: Any) -> Any:
            self._matrix.passed(name, False)
            result = found(*args, **more)
            if name == "save_checkpoint":
                self._matrix.stored.append((args[1].run_number, int(args[1].name.rpartition("s")[2])))
            self._matrix.passed(name, True)
            return _Deadly(result, self._matrix, ("run", "read", "send")) if name == "open" else result

        return called


class _Matrix:
    def __init__(self, point: int, after: bool, only: str) -> None:
        self._left, self._after, self._only = point, after, only
        self.died_at = ""
        self.points = 0
        self.stored: list[tuple[int, int]] = []  # whole checkpoints here: the run that wrote it, and its number

    def passed(self, name: str, after: bool) -> None:
        if after != self._after or self.died_at or (self._only and name != self._only):
            return
        self.points += 1
        self._left -= 1
        if self._left == 0:
            self.died_at = name
            raise Killed(name)

    def wrap(self, parts: JobParts) -> JobParts:
        return msgspec.structs.replace(
            parts,
            jobs=_Deadly(parts.jobs, self, ("save_run", "record", "take_over")),
            launches=_Deadly(parts.launches, self, ("transition", "enqueue", "extend")),
            shells=_Deadly(parts.shells, self, ("open",)),
            files=_Deadly(parts.files, self, ("publish", "save_checkpoint", "append_log")),
        )


def play(folder: Path, point: int, after: bool, fault: str, only: str = "") -> Outcome:
    """Run one world from the queue to the end of its job; without a death for point 0.

    Args:
        only: the call whose points count.
    """
    world, matrix = JobWorld(folder, real=False, bounds={"gone_s": 5.0}), _Matrix(point, after, only)
    moves, relocates = fault == "moves", fault == "relocates"
    world.gpu = "A100 SXM 80GB" if moves else world.gpu
    offers = (_FASTER,) if moves else (_CHEAPER,) if relocates else ()
    world.wrap = lambda parts: matrix.wrap(
        changed(parts, seen=lambda job: tuple(seen_at(offer, world.now) for offer in offers))
    )
    world.restarted()
    pilot = {"pilot": PilotSpec(duration_s=10.0), "limit": JobLimit(max_usd=5)} if moves else {}
    more: dict[str, Any] = {"relocate": _RELOCATE, "hours": FigureRange(20, 30)} if relocates else {}
    small = {"resources": _RENTED, "hours": FigureRange(0.2, 0.5)} if fault == "shares" else {}
    for name in ("train", "two") if fault == "shares" else ("train",):
        world.submit(
            SLOW_AT_FIRST if moves or relocates else COMMAND, name=name,
            results=(JobFiles(source="out/*", target=f"results/{name}"),),
            checkpoint=CheckpointSpec(path="ckpt", every_s=600.0 if relocates else 1.0, keep=2), retries=6,
            **pilot, **small, **more,
        )  # fmt: skip
    world.rents = lambda job: job.name == "train"
    waiting: list[Callable[[], None]] = [lambda: _befall(world, fault)]

    def wanted(job: Any) -> bool:
        if waiting and job.state is JobState.RUNNING and (world.work() / "ckpt").exists():
            waiting.pop()()
        return all(one.is_over for one in world.jobs.jobs.values())

    try:
        for _ in range(4):
            try:
                world.until(wanted, rounds=300)
                break
            except Killed:
                world.restarted()
            except AssertionError:  # it is not over after this many rounds: `_wrong` reports that
                break
        gpu, retries = ("H100 SXM", 5) if moves else ("H100", 6)
        stayed = _stayed(world, gpu, retries) if moves or relocates else ()
        wrong = (*_wrong(world), *_lost(world, matrix.stored), *stayed)
        resumed = any(run.checkpoint for run in world.jobs.runs(world.job.job_id))
        return Outcome(
            point=point, after=after, fault=fault, died_at=matrix.died_at, passed=matrix.points, resumed=resumed,
            wrong=wrong,
        )  # fmt: skip
    finally:
        world.close()


def _befall(world: JobWorld, fault: str) -> None:
    launch_id, machine = list(world.machines.items())[-1]
    if fault == "host vanishes":
        world.lose(launch_id)
    elif fault == "runner killed":
        for process in machine.processes():
            with suppress(FileNotFoundError):  # it has just ended
                if b"supervise" in Path(f"/proc/{process}/cmdline").read_bytes():
                    kill(process)
    elif fault == "notice":
        machine.preempt(30)
    elif fault == "network drops":
        machine.disconnect()


def _wrong(world: JobWorld) -> Iterator[str]:
    for job in world.jobs.jobs.values():
        yield from _unfinished(world, job)
    if len(world.jobs.jobs) > 1 and len(world.machines) > 1:
        yield f"the instance was not shared: {list(world.machines)}"
    if world.alive():
        yield f"instances after the end: {world.alive()}"
    if (world.folder / "twice").exists():
        yield "two commands ran at once"
    starts = world.folder / "starts"
    numbers = starts.read_text().split() if starts.exists() else []
    if not numbers:
        yield "it never ran"
    if len(numbers) != len(set(numbers)):
        yield f"a run started twice: {numbers}"


def _unfinished(world: JobWorld, job: Job) -> Iterator[str]:
    if job.state is not JobState.DONE:
        yield f"job {job.name} is {job.state}: {job.reason}"
    result = world.folder / "project/results" / job.name / "n.txt"
    if job.state is JobState.DONE and (not result.exists() or result.read_text() != "10\n"):
        yield "a result that was reported fetched is not here"


def _lost(world: JobWorld, stored: list[tuple[int, int]]) -> Iterator[str]:
    """Return what a later run repeated although it was fetched: a preemption costs only later work."""
    path = world.folder / "begins"
    for line in path.read_text().splitlines() if path.exists() else ():
        run, begins = map(int, line.split())
        newest = max((number for of, number in stored if of < run), default=0)
        if begins < newest:
            yield f"run {run} begins at step {begins}, and step {newest} was stored"


def _stayed(world: JobWorld, gpu: str, retries_left: int) -> Iterator[str]:
    gpus, retries = world.job.definition.resources.gpu_names, world.job.retries_left
    if gpus != (gpu,) or (world.job.run_number, retries) != (2, retries_left):
        yield f"it did not move once: run {world.job.run_number} on {gpus}, {retries} retries left"


def outcomes(faults: Sequence[str] = FAULTS) -> Iterator[Outcome]:
    """Run worlds: gpuwatch dies before and after each of their points."""
    for fault in faults:
        whole = _play(0, False, fault)
        yield whole
        half = POINTS_MAX // 2
        for point in range(1, whole.passed + 1):
            if whole.passed <= POINTS_MAX or point <= half or point > whole.passed - half:
                yield _play(point, False, fault)
                yield _play(point, True, fault)


def _play(point: int, after: bool, fault: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return play(Path(folder), point, after, fault)
