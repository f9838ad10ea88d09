"""The watches of a command: named ones, all, or one rule from the command line; and a job by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuwatch import settings
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.owner_names import Purpose, owned_name
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import ResourceNotFound, UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.jobs.job_repository import SqlJobRepository
    from gpuwatch.storage.setup.database import Database


GPU_AND_PRICE = "--gpu and --max-price require each other, for example --gpu H100 --max-price 3.50"


def watch_named(settings: Settings, name: str) -> Watch:
    """One watch. Raises UsageError."""
    stored = owned_name(settings.owner, name)
    found_watch = next((watch for watch in settings.watches if watch.name == stored), None)
    if found_watch is None:
        raise no_such_watch(name, [watch.name for watch in settings.watches])
    return found_watch


def no_such_watch(name: str, watch_names: Sequence[str]) -> ResourceNotFound:
    """The error for an unknown watch name."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where a name is wrong

    near = get_close_matches(name, watch_names, n=1)
    names = ", ".join(watch_names) or "none"
    if near:
        return ResourceNotFound(f"there is no watch {name!r}; did you mean {near[0]}? watches: {names}")
    return ResourceNotFound(f"there is no watch {name!r}; watches: {names}")


def require_watch(settings: Settings, name: str) -> str:
    """The name under which a watch is stored.

    Raises:
        UsageError: no watch has this name, not even one whose settings are wrong.
    """
    stored = owned_name(settings.owner, name)
    watch_names = [*(watch.name for watch in settings.watches), *settings.left_out]
    if stored not in watch_names and name not in watch_names:
        raise no_such_watch(name, watch_names)
    return stored


def job_watch_name(settings: Settings, name: str) -> str | None:
    """The name under which the job that `job:NAME` names is stored as a watch; None: a watch is meant."""
    job = Purpose.of(name).job
    return None if job is None else Purpose.of_job(owned_name(settings.owner, job)).watch


def require_group(settings: Settings, group: str) -> str:
    """The name of a group. Raises UsageError: there is none of this name."""
    if group not in settings.groups:
        from gpuwatch.settings.interpolation import unknown_group  # noqa: PLC0415 - only where a name is wrong

        raise ResourceNotFound(unknown_group(group, list(settings.groups)))
    return group


def in_group(settings: Settings, group: str | None) -> list[Watch]:
    """The watches of a group, or all watches without one. Raises UsageError: there is no such group."""
    if group is None:
        return list(settings.watches)
    require_group(settings, group)
    return [watch for watch in settings.watches if watch.group == group]


def require_watches(settings: Settings, watch: str | None, group: str | None) -> list[str]:
    """The names under which a watch, or those of a group, are stored, also of those whose settings are wrong.

    Raises:
        UsageError: there is no such watch or group, the group has no watch, or both or none are given.
    """
    if (watch is None) is (group is None):
        raise UsageError("expected a watch or a group")
    if watch is not None:
        return [require_watch(settings, watch)]
    names = [one.name for one in in_group(settings, group)]
    names += [owned_name(settings.owner, name) for name, of_group in settings.left_out.items() if of_group == group]
    if not names:
        raise UsageError(f'no watch has group = "{group}"')
    return list(dict.fromkeys(names))


def known_job(repository: SqlJobRepository, name_or_id: str) -> Job:
    """A job by its id or name. Raises UsageError: there is none."""
    matching = repository.find_job(name_or_id)
    if matching is None:
        raise ResourceNotFound(f"there is no job {name_or_id!r}; see: gpuwatch jobs list")
    return matching


def known_run(store: Database, name_or_id: str, *, begun: bool) -> Job:
    """A job by its id or name; the name of a recurring job stands for its newest run.

    Args:
        begun: prefer the newest run that had a machine, if there is one.

    Raises:
        UsageError: there is none, or it had no run yet.
    """
    from gpuwatch.storage.jobs.job_repository import SqlJobRepository  # noqa: PLC0415 - most commands need no jobs
    from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository  # noqa: PLC0415

    jobs, series = SqlJobRepository(store), SqlSeriesRepository(store).find(name_or_id)
    is_meant = series is not None and (series.ended_at is None or jobs.find_job(name_or_id) is None)
    if series is None or not is_meant:
        return known_job(jobs, name_or_id)
    runs = jobs.runs_of_series(series.name)
    newest = next(reversed([run for run in runs if run.run_number and begun] or runs), None)
    if newest is None:
        raise ResourceNotFound(f"recurring job {name_or_id!r} had no run yet; see: gpuwatch jobs series")
    return newest


def select_watches(settings: Settings, names: Sequence[str], group: str | None = None) -> list[Watch]:
    """The named watches; without names, those of the group, or all. Raises UsageError: none, or an unknown name."""
    if not settings.watches:
        raise UsageError("there is no [[watch]]: write one (gpuwatch init), or use --gpu H100 --max-price 3.50")
    return [watch_named(settings, name) for name in dict.fromkeys(names)] or in_group(settings, group)


def settings_with_rule(  # noqa: PLR0913 - options of the command
    gpus: Sequence[str],
    max_price: str,
    *,
    count: str | None,
    spot: str | None,
    config: str | None,
    providers: Sequence[str] | None = None,
    action: str | None = None,
    max_runtime_s: float | None = None,
) -> Settings:
    """The settings with one rule instead of their watches; it rents if `action` or `max_runtime_s` requires it.

    Args:
        providers: of the rule; None: all enabled ones.

    Raises:
        UsageError: an option is invalid.
        SettingsError: the settings are invalid.
    """
    flag_settings = settings.from_flags(gpus, max_price, count=count, spot=spot, providers=providers, config=config)
    if max_runtime_s and action == "alert":
        raise UsageError("--max-runtime requires --action launch")
    if action != "launch" and not max_runtime_s:
        return flag_settings
    launch = LaunchSpec(max_runtime_s=max_runtime_s)
    return replace(flag_settings, watches=(replace(flag_settings.watches[0], action=Action.LAUNCH, launch=launch),))
