"""dstack through its command line: `apply`, `ps`, `run get`, `stop`. It rents the machines of a job.

Source: dstack 0.22.5. Its values were read in the package (`RunStatus`, `JobTerminationReason`, `Run.cost`), and its
answers were recorded from a server of that version. A name has one run: `apply -y` of the same task under the name of
an active run changes nothing ("Detected no changes"), and the server rejects a plan made before that run existed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from io import BytesIO
from typing import Any, Final, TypeVar

import msgspec

from gpuwatch.domain.jobs.cluster import TOOL
from gpuwatch.domain.launches.instance import Instance, InstanceState
from gpuwatch.domain.launches.labels import label_ids
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.market.text import clean
from gpuwatch.errors import OrderRefused, OutcomeUnknown, PayloadChanged, ProviderDown, ProviderUnreachable
from gpuwatch.ports import Created, Order, PriceIncrease, ProviderCharge
from gpuwatch.ports.clusters import ClusterRun
from gpuwatch.redaction import redact
from gpuwatch.remote.bounded_process import run_bounded

_LIST_MAX: Final = 99  # "must be less than 100"
_ANSWER_MAX: Final = 32 << 20
_ENV: Final = ("DSTACK_", "SSL_CERT", "REQUESTS_CA", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_", "https_", "no_p")
_PLAIN: Final = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "400"}  # its output is not wrapped
_OVER: Final = frozenset({"terminated", "failed", "done"})
_STARTING: Final = frozenset({"pending", "submitted"})
_ALIVE: Final = frozenset({"provisioning", "running", "terminating"})
T = TypeVar("T")
_BEFORE_RUNNING: Final = frozenset({LaunchState.REQUESTED, LaunchState.UNKNOWN, LaunchState.STARTING, LaunchState.HELD})


class _Machine(msgspec.Struct):
    price: float | None = None


class _Submission(msgspec.Struct):
    status: str
    exit_status: int | None = None
    termination_reason: str | None = None
    job_provisioning_data: _Machine | None = None


class _Job(msgspec.Struct):
    job_submissions: list[_Submission]


class _Configuration(msgspec.Struct):
    nodes: int | None = None
    max_price: float | None = None


class _Spec(msgspec.Struct):
    run_name: str
    configuration: _Configuration


class _Run(msgspec.Struct):
    status: str
    project_name: str
    submitted_at: datetime
    run_spec: _Spec
    jobs: list[_Job]
    termination_reason: str | None = None
    cost: float | None = None


class _ListedRuns(msgspec.Struct):
    project: str
    runs: list[_Run]


class Dstack:
    """Implements `ports.clusters.ClusterLauncher`.

    Args:
        program: its path, or a name on PATH.
        project: empty: the user's default project.
        env: contains its own settings and the variables of jobs.
        alive: returns the states of active launches, by label; ended runs are listed only for those.
    """

    name = TOOL

    def __init__(
        self,
        program: str,
        project: str,
        env: Mapping[str, str],
        *,
        timeout_s: float = 60.0,
        alive: Callable[[], Mapping[str, LaunchState]] = dict,
    ) -> None:
        self._program = program
        self._project = project
        self._env = env
        self._timeout_s = timeout_s
        self._alive = alive
        self._account: str | None = None

    # --- as a cluster engine ------------------------------------------------------------------------------------------

    def submit(self, name: str, task: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Submit a run once."""
        code, said = self._call(["apply", "-f", "-", "-y", "-d"], json.dumps(task).encode(), secrets)
        if code != 0:
            raise OutcomeUnknown(f"dstack apply: {self._shown(said, secrets) or code}")

    def run(self, name: str) -> ClusterRun | None:
        """Return a run, active or ended; None: neither a list nor a query by its name finds one."""
        found = self._found(name)
        return None if found is None else _cluster_run(found)

    def account_id(self) -> str:
        """Return the project: lists contain no runs of other projects."""
        return self._list().project

    # --- as a launcher ------------------------------------------------------------------------------------------------

    def create(self, order: Order) -> Created:
        """Refuse: it rents only whole clusters."""
        raise OrderRefused("dstack runs only jobs with several nodes")

    def list_instances(self) -> Sequence[Instance]:
        """Return active runs of anybody, and ended runs whose launch has not recorded the end yet."""
        alive = self._alive()
        listed = {run.run_spec.run_name: run for run in self._list().runs}
        for label, state in alive.items():  # an old one may be behind a hundred newer ones
            if label not in listed and state in {LaunchState.STARTING, LaunchState.RUNNING, LaunchState.STOPPING}:
                found = self._got(label)
                listed |= {} if found is None else {label: found}
        shown = [_instance(run, alive.get(name)) for name, run in listed.items()]
        return [one for one in shown if one is not None]

    def get(self, instance_id: str) -> Instance | None:
        """Return one run; None: it is over, or there is none."""
        found = self._found(instance_id)
        return None if found is None else _instance(found, self._alive().get(instance_id))

    def destroy(self, instance_id: str) -> None:
        """Request its end; the list shows when it has ended."""
        code, said = self._call(["stop", "-y", instance_id])
        if code != 0 and not _is_not_found(said, instance_id):
            raise ProviderDown(f"dstack stop: {self._shown(said) or code}")

    def credit_usd(self) -> None:
        """Return None: it is not reported."""
        return

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """Refuse: bids are not supported."""
        raise OrderRefused("dstack does not support bids")

    def price_increases(self) -> Sequence[PriceIncrease]:
        """Return none: they are not reported."""
        return ()

    def answer_increase(self, increase_id: str, accept: bool) -> None:
        """Refuse: there are no increases."""
        raise OrderRefused("dstack does not report price increases")

    def charges(self, since: date, until: date) -> Sequence[ProviderCharge] | None:
        """Return None: it reports the cost of a run, but not by day."""
        return None

    # --- queries ------------------------------------------------------------------------------------------------------

    def _list(self) -> _ListedRuns:
        """Return the newest runs, active or ended, and every active one. Raises ProviderError."""
        listed = self._asked(["ps", "--all", "--last", str(_LIST_MAX), "--json"])
        if len(listed.runs) >= _LIST_MAX:
            active = self._asked(["ps", "--json"])
            if len(active.runs) > _LIST_MAX:
                raise PayloadChanged("dstack: there are more active runs than one list shows")
            listed.runs += active.runs
        if self._account not in {None, listed.project}:
            raise ProviderDown(f"dstack answers for project {clean(listed.project)!r}, not {self._account!r}")
        self._account = listed.project
        return listed

    def _asked(self, words: Sequence[str]) -> _ListedRuns:
        code, said = self._call(words)
        if code != 0:
            raise ProviderDown(f"dstack ps: {self._shown(said) or code}")
        return _decoded(said, _ListedRuns)

    def _found(self, name: str) -> _Run | None:
        listed = [run for run in self._list().runs if run.run_spec.run_name == name]
        return listed[0] if listed else self._got(name)

    def _got(self, name: str) -> _Run | None:
        code, said = self._call(["run", "get", name, "--json"])
        if code == 0:
            run = _decoded(said, _Run)
            if run.run_spec.run_name != name or run.project_name != self._account:
                raise PayloadChanged(f"dstack: asked for run {name}, but got another one")
            return run
        if _is_not_found(said, name):
            return None
        raise ProviderDown(f"dstack run get: {self._shown(said) or code}")

    def _call(
        self, words: Sequence[str], stdin: bytes = b"", secrets: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return the exit code and the output.

        Raises:
            ProviderUnreachable: it did not run.
            ProviderDown, OutcomeUnknown: it did not end in time; OutcomeUnknown for an order.
        """
        program = shutil.which(self._program, path=self._env.get("PATH"))
        if program is None:
            raise ProviderUnreachable(
                f"dstack: there is no program {self._program!r}: install dstack, or set [orchestrator] program"
            )
        kept = {name: text for name, text in self._env.items() if name.startswith(_ENV)}
        project = ["--project", self._project] if self._project else []
        into = BytesIO()
        try:
            done = run_bounded(
                [program, *words, *project],
                into,
                timeout_s=self._timeout_s,
                max_bytes=_ANSWER_MAX,
                stdin=stdin,
                env={**kept, **dict(secrets or {}), **_PLAIN},
                folder="/",  # contains no project's own profile
            )
        except OSError as error:
            raise ProviderUnreachable(f"dstack: {self._program}: {error.strerror}") from None
        if done.exit_code is None or done.cut:
            why = f"no answer within {self._timeout_s:g} s" if done.exit_code is None else "an endless answer"
            raise (OutcomeUnknown if stdin else ProviderDown)(f"dstack {words[0]}: {why}")
        return done.exit_code, into.getvalue() + (done.stderr if done.exit_code != 0 else b"")

    def _shown(self, said: bytes, secrets: Mapping[str, str] | None = None) -> str:
        """Return the last lines of the output, without a job's secrets."""
        text = " ".join(said.decode("utf-8", "replace").split())
        for part in _parts_of(secrets or {}):
            text = text.replace(part, "***")
        return clean(redact(text)[-300:], 300)


def _parts_of(secrets: Mapping[str, str]) -> list[str]:
    """Return the secrets to remove from a text of one line, and each line of multi-line ones; longest first."""
    found = {" ".join(one.split()) for text in secrets.values() for one in (text, *text.splitlines())}
    return sorted(found - {""}, key=len, reverse=True)


def _decoded(said: bytes, into: type[T]) -> T:
    try:
        return msgspec.json.decode(said, type=into)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PayloadChanged(f"dstack: unexpected answer: {clean(str(error), 200)}") from None


def _is_not_found(said: bytes, name: str) -> bool:
    return f"Run {name} not found" in " ".join(said.decode("utf-8", "replace").split())


def _cluster_run(run: _Run) -> ClusterRun:
    submissions = [one for job in run.jobs for one in job.job_submissions]
    machines = [one.job_provisioning_data for one in submissions if one.job_provisioning_data is not None]
    is_over = run.status in _OVER
    codes = [one.exit_status for one in submissions if one.exit_status]
    reasons = [one.termination_reason for one in submissions if one.termination_reason]
    of_run = run.termination_reason or ""
    why = of_run if of_run.endswith("_by_user") else next((one for one in reasons if one not in _CAUSED), of_run)
    return ClusterRun(
        name=run.run_spec.run_name,
        status=run.status,
        is_over=is_over,
        is_placed=bool(machines) or run.status == "done",
        usd_hour=None if is_over else _usd_hour(run, machines),
        cost_usd=run.cost,
        exit_code=codes[0] if codes else (0 if run.status == "done" else None),
        why=why,
    )


_CAUSED: Final = frozenset({"terminated_by_server", "done_by_runner"})  # by the end of another machine, or of the run


def _usd_hour(run: _Run, machines: Sequence[_Machine]) -> float | None:
    """Return the price of its machines, with the price cap for those not rented yet."""
    cap, prices = run.run_spec.configuration.max_price, [one.price for one in machines]
    nodes = run.run_spec.configuration.nodes or 1
    prices += [None] * (nodes - len(prices))
    known = [cap if price is None else price for price in prices]
    return sum(one for one in known if one is not None) if machines and None not in known else None


def _instance(run: _Run, state: LaunchState | None) -> Instance | None:
    """Return it as an item of an instance list; None: it is over, and no active launch needs to know."""
    shown = _cluster_run(run)
    if shown.is_over and (state is None or state is LaunchState.STOPPING):
        return None
    return Instance(
        instance_id=shown.name,
        label=shown.name if label_ids(shown.name) else None,
        state=_state(shown, state),
        status=_words(shown),
        listed_usd_hour=shown.usd_hour,
        is_placed=shown.is_placed,
    )


def _state(run: ClusterRun, launch: LaunchState | None) -> InstanceState:
    """Return the state. A run that ended unobserved is shown as running once, because its machines were billed."""
    if run.is_over:
        if run.is_placed and launch in _BEFORE_RUNNING:
            return InstanceState.RUNNING
        return InstanceState.EXITED if run.exit_code is not None else InstanceState.FAILED
    if run.status in _ALIVE:
        return InstanceState.RUNNING if run.is_placed else InstanceState.STARTING
    return InstanceState.STARTING if run.status in _STARTING else InstanceState.UNKNOWN


def _words(run: ClusterRun) -> str:
    if not run.is_over:
        return clean(run.status, 100)
    code = "" if run.exit_code is None else f", exited ({run.exit_code})"
    why = f": {run.why}" if run.why and run.status != "done" else ""
    return clean(f"{run.status}{why}{code}", 200)
