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

from gpuwatch.domain.jobs.cluster_task import TOOL
from gpuwatch.domain.launches.instance import Instance, InstanceState, label_ids
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.market.offer import clean
from gpuwatch.errors import OrderRefused, OutcomeUnknown, PayloadChanged, ProviderDown, ProviderUnreachable
from gpuwatch.ports import Created, Order, PriceIncrease, ProviderCharge
from gpuwatch.ports.jobs import ClusterRun
from gpuwatch.redaction import redact
from gpuwatch.remote.bounded_process import one_line, run_bounded

_MAX_LISTED_RUNS: Final = 99  # "must be less than 100"
_MAX_OUTPUT_BYTES: Final = 32 << 20
_ENV: Final = ("DSTACK_", "SSL_CERT", "REQUESTS_CA", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_", "https_", "no_p")
_PLAIN_OUTPUT_ENV: Final = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "400"}  # its output is not wrapped
_ENDED_STATUSES: Final = frozenset({"terminated", "failed", "done"})
_STARTING_STATUSES: Final = frozenset({"pending", "submitted"})
_ACTIVE_STATUSES: Final = frozenset({"provisioning", "running", "terminating"})
_KNOWN_STATUSES: Final = _ENDED_STATUSES | _STARTING_STATUSES | _ACTIVE_STATUSES  # RunStatus of dstack, 2026-08
T = TypeVar("T")
_BEFORE_RUNNING: Final = frozenset({LaunchState.REQUESTED, LaunchState.UNKNOWN, LaunchState.STARTING, LaunchState.HELD})


class _Machine(msgspec.Struct):
    price: float | None = None


class _Submission(msgspec.Struct):
    status: str
    exit_status: int | None = None
    termination_reason: str | None = None
    termination_reason_message: str | None = None
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
    """Implements `ports.jobs.ClusterLauncher`.

    Args:
        program: its path, or a name on PATH.
        project: empty: the user's default project.
        env: contains its own settings and the variables of jobs.
        launch_states: returns the states of active launches, by label; ended runs are listed only for those.
    """

    name = TOOL

    def __init__(
        self,
        program: str,
        project: str,
        env: Mapping[str, str],
        *,
        timeout_s: float = 60.0,
        launch_states: Callable[[], Mapping[str, LaunchState]] = dict,
    ) -> None:
        self._program = program
        self._project = project
        self._env = env
        self._timeout_s = timeout_s
        self._launch_states = launch_states
        self._account: str | None = None

    # --- as a cluster engine ------------------------------------------------------------------------------------------

    def submit(self, name: str, task: Mapping[str, Any], secrets: Mapping[str, str]) -> None:
        """Submit a run once."""
        code, output = self._call(["apply", "-f", "-", "-y", "-d"], json.dumps(task).encode(), secrets)
        if code != 0:
            raise OutcomeUnknown(f"dstack apply: {self._redacted(output, secrets) or code}")

    def run(self, name: str) -> ClusterRun | None:
        """Return a run, active or ended; None: neither a list nor a query by its name finds one."""
        run = self._find_run(name)
        return None if run is None else _cluster_run(run)

    def account_id(self) -> str:
        """Return the project: lists contain no runs of other projects."""
        return self._newest_runs().project

    # --- as a launcher ------------------------------------------------------------------------------------------------

    def create(self, order: Order) -> Created:
        """Refuse: it rents only whole clusters."""
        raise OrderRefused("dstack runs only jobs with several nodes")

    def list_instances(self) -> Sequence[Instance]:
        """Return active runs of anybody, and ended runs whose launch has not recorded the end yet."""
        launch_states = self._launch_states()
        runs = {run.run_spec.run_name: run for run in self._newest_runs().runs}
        for label, state in launch_states.items():  # an old one may be behind a hundred newer ones
            if label not in runs and state in {LaunchState.STARTING, LaunchState.RUNNING, LaunchState.STOPPING}:
                older = self._get_run(label)
                runs |= {} if older is None else {label: older}
        instances = [_instance(run, launch_states.get(name)) for name, run in runs.items()]
        return [instance for instance in instances if instance is not None]

    def get(self, instance_id: str) -> Instance | None:
        """Return one run; None: it is over, or there is none."""
        run = self._find_run(instance_id)
        return None if run is None else _instance(run, self._launch_states().get(instance_id))

    def destroy(self, instance_id: str) -> None:
        """Request its end; the list shows when it has ended."""
        code, output = self._call(["stop", "-y", instance_id])
        if code != 0 and not _is_not_found(output, instance_id):
            raise ProviderDown(f"dstack stop: {self._redacted(output) or code}")

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

    def _newest_runs(self) -> _ListedRuns:
        """Return the newest runs, active or ended, and every active one. Raises ProviderError."""
        listed = self._list_runs(["ps", "--all", "--last", str(_MAX_LISTED_RUNS), "--json"])
        if len(listed.runs) >= _MAX_LISTED_RUNS:
            active = self._list_runs(["ps", "--json"])
            if len(active.runs) > _MAX_LISTED_RUNS:
                raise PayloadChanged("dstack: there are more active runs than one list shows")
            listed.runs += active.runs
        if self._account not in {None, listed.project}:
            raise ProviderDown(f"dstack answers for project {clean(listed.project)!r}, not {self._account!r}")
        self._account = listed.project
        return listed

    def _list_runs(self, args: Sequence[str]) -> _ListedRuns:
        code, output = self._call(args)
        if code != 0:
            raise ProviderDown(f"dstack ps: {self._redacted(output) or code}")
        return _decode(output, _ListedRuns)

    def _find_run(self, name: str) -> _Run | None:
        matching = [run for run in self._newest_runs().runs if run.run_spec.run_name == name]
        return matching[0] if matching else self._get_run(name)

    def _get_run(self, name: str) -> _Run | None:
        code, output = self._call(["run", "get", name, "--json"])
        if code == 0:
            run = _decode(output, _Run)
            if run.run_spec.run_name != name or run.project_name != self._account:
                raise PayloadChanged(f"dstack: asked for run {name}, but got another one")
            return run
        if _is_not_found(output, name):
            return None
        raise ProviderDown(f"dstack run get: {self._redacted(output) or code}")

    def _call(
        self, args: Sequence[str], stdin: bytes = b"", secrets: Mapping[str, str] | None = None
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
        env = {name: text for name, text in self._env.items() if name.startswith(_ENV)}
        project = ["--project", self._project] if self._project else []
        stdout = BytesIO()
        try:
            result = run_bounded(
                [program, *args, *project],
                stdout,
                timeout_s=self._timeout_s,
                max_bytes=_MAX_OUTPUT_BYTES,
                stdin=stdin,
                env={**env, **dict(secrets or {}), **_PLAIN_OUTPUT_ENV},
                folder="/",  # contains no project's own profile
            )
        except OSError as error:
            raise ProviderUnreachable(f"dstack: {self._program}: {error.strerror}") from None
        if result.exit_code is None or result.is_truncated:
            reason = f"no answer within {self._timeout_s:g} s" if result.exit_code is None else "an endless answer"
            raise (OutcomeUnknown if stdin else ProviderDown)(f"dstack {args[0]}: {reason}")
        return result.exit_code, stdout.getvalue() + (result.stderr if result.exit_code != 0 else b"")

    def _redacted(self, output: bytes, secrets: Mapping[str, str] | None = None) -> str:
        """Return the last lines of the output, without a job's secrets."""
        text = one_line(output)
        for part in _secret_lines(secrets or {}):
            text = text.replace(part, "***")
        return clean(redact(text)[-300:], 300)


def _secret_lines(secrets: Mapping[str, str]) -> list[str]:
    """Return the secrets to remove from a text of one line, and each line of multi-line ones; longest first."""
    lines = {" ".join(line.split()) for text in secrets.values() for line in (text, *text.splitlines())}
    return sorted(lines - {""}, key=len, reverse=True)


def _decode(output: bytes, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(output, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PayloadChanged(f"dstack: unexpected answer: {clean(str(error), 200)}") from None


def _is_not_found(output: bytes, name: str) -> bool:
    return f"Run {name} not found" in one_line(output)


def _cluster_run(run: _Run) -> ClusterRun:
    submissions = [submission for job in run.jobs for submission in job.job_submissions]
    machines = [
        submission.job_provisioning_data for submission in submissions if submission.job_provisioning_data is not None
    ]
    is_over = run.status in _ENDED_STATUSES
    exit_codes = [submission.exit_status for submission in submissions if submission.exit_status]
    primary = next(
        (one for one in submissions if (one.termination_reason or _SECONDARY) not in _SECONDARY_REASONS), None
    )
    run_reason = run.termination_reason or ""
    if run_reason.endswith("_by_user"):
        primary = None
    return ClusterRun(
        name=run.run_spec.run_name,
        status=run.status,
        is_over=is_over,
        is_placed=bool(machines) or run.status == "done",
        usd_hour=None if is_over else _usd_hour(run, machines),
        cost_usd=run.cost,
        exit_code=exit_codes[0] if exit_codes else (0 if run.status == "done" else None),
        why=run_reason if primary is None else primary.termination_reason or "",
        message="" if primary is None else _first_sentence(primary.termination_reason_message or ""),
    )


_SECONDARY: Final = "terminated_by_server"
_SECONDARY_REASONS: Final = frozenset({_SECONDARY, "done_by_runner"})  # another machine or the run ended


def _first_sentence(text: str) -> str:
    """Return the first line of a message, without the link that follows ("Possible reasons: https://…")."""
    return text.partition("\n")[0].partition(" Possible reasons:")[0].strip().rstrip(".")


def _usd_hour(run: _Run, machines: Sequence[_Machine]) -> float | None:
    """Return the price of its machines, with the price cap for those not rented yet."""
    cap, prices = run.run_spec.configuration.max_price, [machine.price for machine in machines]
    nodes = run.run_spec.configuration.nodes or 1
    prices += [None] * (nodes - len(prices))
    capped = [cap if price is None else price for price in prices]
    return sum(one for one in capped if one is not None) if machines and None not in capped else None


def _instance(run: _Run, state: LaunchState | None) -> Instance | None:
    """Return it as an item of an instance list; None: it is over, and no active launch needs to know."""
    cluster_run = _cluster_run(run)
    if cluster_run.is_over and (state is None or state is LaunchState.STOPPING):
        return None
    return Instance(
        instance_id=cluster_run.name,
        label=cluster_run.name if label_ids(cluster_run.name) else None,
        state=_state(cluster_run, state),
        status=_status_text(cluster_run),
        unknown_status=None if cluster_run.status in _KNOWN_STATUSES else clean(cluster_run.status, 60),
        listed_usd_hour=cluster_run.usd_hour,
        is_placed=cluster_run.is_placed,
    )


def _state(run: ClusterRun, launch: LaunchState | None) -> InstanceState:
    """Return the state. A run that ended unobserved is shown as running once, because its machines were billed."""
    if run.is_over:
        if run.is_placed and launch in _BEFORE_RUNNING:
            return InstanceState.RUNNING
        return InstanceState.EXITED if run.exit_code is not None else InstanceState.FAILED
    if run.status in _ACTIVE_STATUSES:
        return InstanceState.RUNNING if run.is_placed else InstanceState.STARTING
    return InstanceState.STARTING if run.status in _STARTING_STATUSES else InstanceState.UNKNOWN


def _status_text(run: ClusterRun) -> str:
    if not run.is_over:
        return clean(run.status, 100)
    exit_code = "" if run.exit_code is None else f", exited ({run.exit_code})"
    reason = f": {run.why}" if run.why and run.status != "done" else ""
    message = f" ({run.message})" if run.message else ""
    return clean(f"{run.status}{reason}{exit_code}{message}", 300)
