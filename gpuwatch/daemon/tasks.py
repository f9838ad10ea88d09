"""The daemon's periodic tasks, and the warnings at its start."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

import msgspec

from gpuwatch import notifiers
from gpuwatch.bootstrap import new_id
from gpuwatch.bootstrap.job_building import refresh_ssh_hosts
from gpuwatch.bootstrap.polling import polling_warnings
from gpuwatch.bootstrap.service import Service
from gpuwatch.daemon.task_progress import PeriodicTask
from gpuwatch.daemon.task_supervisor import rescue_alert
from gpuwatch.domain.alerts.launch_texts import UNSERVED
from gpuwatch.domain.jobs.cluster_task import TOOL
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.domain.watches.owner_names import owner_of
from gpuwatch.engine.history.daily_lake import DailyLake
from gpuwatch.engine.history.retention import Retention
from gpuwatch.engine.launches.following.launch_reconciler import LaunchReconciler
from gpuwatch.engine.launches.guarding.invoice_fetcher import InvoiceFetcher
from gpuwatch.engine.launches.renting.reminders import send_reminders
from gpuwatch.engine.launches.renting.requoter import REFRESH_S
from gpuwatch.engine.setup.failpoint import pace
from gpuwatch.engine.setup.leadership import role_of
from gpuwatch.engine.watches.provider_worker import FirstRequestGate, ProviderWorker
from gpuwatch.hooks.owner_command import run_command
from gpuwatch.settings import Settings
from gpuwatch.storage.history.prune import SqlPruner
from gpuwatch.storage.setup.database import Database
from gpuwatch.storage.watches.running_hosts import is_unserved

log = logging.getLogger(__name__)


RECONCILE_EVERY_S = 2.0
DELIVER_EVERY_S = 1.0
STANDBY_DELIVER_EVERY_S = 5.0  # the leader delivers at once; this is for when its channels hang
HEALTH_EVERY_S = 5.0
SWEEP_CHECK_EVERY_S = 15.0
ROLL_UP_EVERY_S = 60.0
PRUNE_EVERY_S = 60.0
GUARD_EVERY_S = 5.0
PREREQUISITES_EVERY_S = 15.0  # only checks whether it is due
HOOKS_EVERY_S = 2.0
OTHERS_EVERY_S = 5.0  # another host's extension must be in the keeper's file within its 75 s
SSH_HOSTS_EVERY_S = 5.0
COMMANDS_EVERY_S = 2.0
REMIND_EVERY_S = 3600.0
AUTO_PRICE_EVERY_S = 60.0
JOB_RUNS_EVERY_S = 5.0
JOBS_EVERY_S = 2.0
CLUSTERS_IDLE_S = 300.0
CLUSTERS_EVERY_S = 15.0  # each call of the program takes a second of processor time
LISTS_EVERY_S = 600.0
LAKE_EVERY_S = 600.0  # only checks whether a day is over
LAKE_TIMEOUT_S = 6 * 3600.0  # the first time, years may be written
RANKS_EVERY_S = 60.0  # only checks whether an hour is over
CHARGES_EVERY_S = 300.0  # only checks whether an hour is over: the collector fetches once an hour
_HUNT_INTERVALS = 5  # a hunt hangs after this many intervals without a finished round
_FOLLOW_TIMEOUTS = 10  # × the provider's timeout: a run sends several requests


def periodic_tasks(service: Service) -> list[PeriodicTask]:
    """Return every task of the daemon. The tasks of one provider never wait for those of another."""
    shared = [
        PeriodicTask(
            name="deliver",
            run=_with_now(service, service.deliverer.send_due),
            every_s=DELIVER_EVERY_S if service.lease.leads else STANDBY_DELIVER_EVERY_S,
            is_essential=True,
            on_every_host=True,
        ),
        PeriodicTask(
            name="keeper's file",
            run=lambda: _note_other_changes(service),
            every_s=OTHERS_EVERY_S,
            on_every_host=True,
        ),
        PeriodicTask(
            name="ssh hosts",
            run=lambda: refresh_ssh_hosts(service.settings, service.launch_repository.own_alive),
            every_s=SSH_HOSTS_EVERY_S,
            on_every_host=True,
        ),
        PeriodicTask(name="hooks", run=_with_now(service, service.hooks.run_due), every_s=HOOKS_EVERY_S),
        PeriodicTask(
            name="commands",
            run=_with_now(service, service.commands.follow),
            every_s=COMMANDS_EVERY_S / min(pace(), 4.0),
        ),
        *_standby_tasks(service),
        PeriodicTask(name="remind", run=lambda: _remind_unfinished(service), every_s=REMIND_EVERY_S),
        PeriodicTask(name="roll-up", run=_with_now(service, service.history.roll_up), every_s=ROLL_UP_EVERY_S),
        PeriodicTask(name="prune", run=_with_now(service, _retention(service).run), every_s=PRUNE_EVERY_S),
        PeriodicTask(
            name="price ranks",
            run=_with_now(service, service.polling.price_ranks.refresh_if_due),
            every_s=RANKS_EVERY_S,
        ),
        PeriodicTask(name="auto price", run=lambda: _renew_auto_prices(service), every_s=AUTO_PRICE_EVERY_S),
    ]
    if service.settings.history.lake:
        shared.append(_lake_task(service))
    if service.own_machines.hosts:
        every_s = service.settings.own_machines.every_s
        run = partial(service.own_machines.read, service.time_source.now)
        shared.append(PeriodicTask(name="own machines", run=run, every_s=every_s))
    if not service.settings.rescue:
        shared.append(PeriodicTask(name="jobs", run=lambda: _advance_queue(service), every_s=JOBS_EVERY_S))
        runs_s = JOB_RUNS_EVERY_S / min(pace(), 4.0)
        if service.cluster_jobs is not None:
            clusters = _with_now(service, service.cluster_jobs.tick)
            shared.append(PeriodicTask(name="clusters", run=clusters, every_s=CLUSTERS_EVERY_S / pace()))
        shared.append(PeriodicTask(name="job runs", run=_with_now(service, service.job_runner.tick), every_s=runs_s))
    return [*shared, *_polling_tasks(service), *_launch_tasks(service), *_charge_tasks(service)]


def _lake_task(service: Service) -> PeriodicTask:
    place, source_file = service.settings.history.lake, service.settings.source_file
    config = () if source_file is None else ("--config", source_file)
    argv = ("nice", sys.executable, "-m", "gpuwatch", "store", "export", "--lake", place, "--json", *config)

    def export() -> str | None:
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", **os.environ}  # its own pool keeps 50 MB more
        result = run_command(argv, b"", environment, LAKE_TIMEOUT_S, service.stopping)
        return None if result.code == 0 or service.stopping.is_set() else result.last_line or "it was killed"

    run = _with_now(service, DailyLake(service.store, place, export).run_if_due)
    return PeriodicTask(name="lake", run=run, every_s=LAKE_EVERY_S, progress_within_s=LAKE_TIMEOUT_S + 2 * LAKE_EVERY_S)


def _retention(service: Service) -> Retention:
    history = service.settings.history
    pruner = SqlPruner(service.store, history.keep, history.lake)
    return Retention(service.store, pruner, service.launch_repository.enqueue)


def _standby_tasks(service: Service) -> Iterator[PeriodicTask]:
    if not service.lease.leads and not service.settings.rescue:
        run = _with_now(service, service.watch_list.check)
        yield PeriodicTask(name="watch list", run=run, every_s=LISTS_EVERY_S, on_every_host=True)


def _advance_queue(service: Service) -> None:
    service.series_starter.tick(service.time_source.now())
    service.job_queue.tick(service.time_source.now())
    service.polling.forget_jobs_that_are_over()


def _polling_tasks(service: Service) -> Iterator[PeriodicTask]:
    for name, worker in service.polling.workers.items():
        sweep_s = worker.settings.sweep_every_s
        check_s = SWEEP_CHECK_EVERY_S if sweep_s is None else min(sweep_s, SWEEP_CHECK_EVERY_S)
        yield _hunt_task(service, name, worker)
        yield PeriodicTask(name=f"sweep {name}", run=worker.sweep_if_due, every_s=check_s)
        yield PeriodicTask(name=f"health {name}", run=worker.check_health, every_s=HEALTH_EVERY_S)


def _hunt_task(service: Service, name: str, worker: ProviderWorker) -> PeriodicTask:
    poll_s = worker.hunt_every_s
    return PeriodicTask(
        name=f"hunt {name}",
        run=_build_hunt(service, name, worker),
        every_s=poll_s,
        jitter_s=min(1.0, poll_s / 20),
        is_essential=True,
        progress_within_s=_HUNT_INTERVALS * worker.interval_s + 4 * worker.settings.timeout_s,
        steps=lambda: worker.steps,
    )


def _build_hunt(service: Service, name: str, worker: ProviderWorker) -> Callable[[], None]:
    """Return the hunt of a provider. Its first round waits briefly for the first instance list and the prerequisites:
    before them, nothing can be rented there.
    """
    source, following = service.time_source, service.following
    reconciler, gate = following.reconcilers.get(name), following.gates.get(name)

    def is_alive() -> bool:
        if reconciler is None or reconciler.reconciled:
            return True
        return following.accounts[name].account_id is not None and not reconciler.list_failed

    first_request = FirstRequestGate(
        started_s=source.monotonic(),
        is_listed=lambda: service.settings.dry_run or reconciler is None or reconciler.reconciled,
        is_checked=lambda: service.settings.dry_run or gate is None or gate.has_checked,
        is_alive=is_alive,
        rents=service.rents,
    )
    if reconciler is not None and not service.settings.dry_run:
        service.polling.gathering.starts(name)

    def run() -> None:
        while not first_request.is_due(source.monotonic()):
            if service.stopping.is_set():
                return
            source.wait(service.stopping, 0.05)
        if service.polling.gathering.is_starting(name):
            service.polling.gathering.started(name, source.now() if first_request.is_ready() else None)
        worker.hunt()

    return run


def _run_if_rents(service: Service, task: Callable[[], object]) -> Callable[[], object]:
    """Check at each run whether anything rents, because jobs can be queued at any time."""
    return lambda: task() if service.rents() else None


def _launch_tasks(service: Service) -> Iterator[PeriodicTask]:
    if not service.settings.dry_run:
        for name, balance in service.following.balances.items():
            yield PeriodicTask(name=f"balance {name}", run=_run_if_rents(service, balance.refresh), every_s=REFRESH_S)
    for name, gate in service.following.gates.items():
        run = _with_now(service, gate.run_if_due)
        yield PeriodicTask(name=f"prerequisites {name}", run=run, every_s=PREREQUISITES_EVERY_S / pace())
    for name, guard in service.following.guards.items():
        yield _follow_task(service, f"guard {name}", name, _with_now(service, guard.refresh), GUARD_EVERY_S)
    for name, reconciler in service.following.reconcilers.items():
        if name == TOOL:
            run = _follow_clusters(service, reconciler)
            yield _follow_task(service, f"follow {name}", name, run, CLUSTERS_EVERY_S / pace())
            continue
        every_s = RECONCILE_EVERY_S / min(pace(), 4.0)  # at least half a second: a list takes time
        task = _follow_task(service, f"follow {name}", name, _with_now(service, reconciler.run_if_due), every_s)
        yield msgspec.structs.replace(task, steps=partial(getattr, reconciler, "steps"))


def _follow_task(service: Service, name: str, provider: str, run: Callable[[], object], every_s: float) -> PeriodicTask:
    """Return a task that active launches depend on."""
    provider_settings = service.settings.providers.get(provider.partition(" ")[0])
    timeout_s = service.settings.orchestrator.timeout_s if provider_settings is None else provider_settings.timeout_s
    max_silence_s = _FOLLOW_TIMEOUTS * timeout_s + 5 * every_s
    return PeriodicTask(name=name, run=run, every_s=every_s, is_essential=True, progress_within_s=max_silence_s)


def _charge_tasks(service: Service) -> Iterator[PeriodicTask]:
    """Yield one task per provider that rents: it fetches the charges, at most once an hour."""
    for name, launcher in service.following.launchers.items():
        collector = InvoiceFetcher(
            name, launcher, service.launch_repository.all, service.invoices, service.time_source.monotonic
        )
        yield PeriodicTask(
            name=f"charges {name}", run=_with_now(service, collector.run_if_due), every_s=CHARGES_EVERY_S
        )


def _with_now(service: Service, task: Callable[[datetime], object]) -> Callable[[], object]:
    return lambda: task(service.time_source.now())


def _note_other_changes(service: Service) -> None:
    """Take note of what commands and other hosts changed: in the keeper's file, and in the watches' slots."""
    service.slots.note_alive(service.launch_repository.update_obligations())


def _remind_unfinished(service: Service) -> int:
    now = service.time_source.now()
    if service.settings.rescue:
        service.launch_repository.enqueue(rescue_alert(service.settings.rescue, now=now))
    _report_unserved(service, now)
    return send_reminders(
        service.launch_repository, service.launch_alerts, frozenset(service.following.reconcilers), now
    )


def _report_unserved(service: Service, now: datetime) -> None:
    """Report active launches of owners without a host: of their own, nobody follows and guards them."""
    own = service.settings.owner
    of_others: dict[str, list[str]] = {}
    for launch in service.launch_repository.alive():
        if (owner := owner_of(launch.watch)) != own and not launch.dry_run:
            of_others.setdefault(owner, []).append(launch.launch_id)
    for owner, ids in of_others.items():
        if is_unserved(service.store, role_of(owner)):
            whose = f"owner {owner}" if owner else "the installation, without an owner,"
            whose, count = f"{whose} {'is' if len(ids) == 1 else 'are'}", count_text(len(ids), "launch", "launches")
            fields = {"whose": whose, "launches": count, "ids": ", ".join(ids), "by": own}
            service.launch_repository.enqueue(UNSERVED.outbox(new_id(), now, subject=owner, **fields))


def _renew_auto_prices(service: Service) -> None:
    watches = (*service.settings.watches, *service.job_queue.watches)
    service.polling.auto_prices.update(watches, service.time_source.now())


def _follow_clusters(service: Service, reconciler: LaunchReconciler) -> Callable[[], bool]:
    """Return the task that lists clusters: rarely without active launches, because each list starts a program."""
    listed_at: list[datetime] = []

    def run() -> bool:
        now = service.time_source.now()
        idle = timedelta(seconds=CLUSTERS_IDLE_S / pace())
        if (
            reconciler.reconciled
            and listed_at
            and is_recent(listed_at[0], now, idle)
            and not service.launch_repository.alive(TOOL)
        ):
            return False
        listed_at[:] = [now]
        reconciler.run_soon()
        return reconciler.run_if_due(now)

    return run


# --- warnings at the start --------------------------------------------------------------------------------------------


def log_start_up_warnings(settings: Settings, store: Database) -> None:
    """Log each warning once; called at every start, and for reloaded settings."""
    for text in start_up_warnings(settings, store):
        log.warning("%s", text)


def start_up_warnings(settings: Settings, store: Database | None = None) -> Iterator[str]:
    """Return one line each: what is missing, its consequence, what to do."""
    if not settings.watches:
        yield _no_watch(settings)
    if not settings.channels:
        sections = ", ".join(f"[notify.{name}]" for name in notifiers.names())
        yield (
            "no channel is configured: alerts appear only in this log and in `gpuwatch alerts`; "
            f"add one of {sections}, then run: gpuwatch alerts test"
        )
    for name, channel in settings.channels.items():
        if channel.options.get("webhook") and not settings.web.enabled:
            yield f"notify.{name}.webhook: updates require [web] enabled = true; gpuwatch polls the bot instead"
    yield from polling_warnings(settings, store)


def _no_watch(settings: Settings) -> str:
    where = settings.source_file or "the settings (no file was found)"
    mend = "add a [[watch]]" if settings.source_file else "set up the first with: gpuwatch init"
    gpus = settings.record.gpu_names
    effect = f"gpuwatch only records the prices of {', '.join(gpus[:5])}" if gpus else "gpuwatch polls no marketplace"
    more = f" and {len(gpus) - 5} more" if len(gpus) > 5 else ""
    return f"there is no [[watch]] in {where}: {effect}{more}; it reports and rents nothing, except for jobs; {mend}"
