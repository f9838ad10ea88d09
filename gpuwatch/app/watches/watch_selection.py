"""The watches of a command: named ones, all, or one rule from the command line; and a job by its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuwatch import settings
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.owner_names import owned_name
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import ResourceNotFound, UsageError

if TYPE_CHECKING:
    from gpuwatch.domain.jobs.job import Job
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.jobs.job_repository import SqlJobRepository


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


def known_job(repository: SqlJobRepository, name_or_id: str) -> Job:
    """A job by its id or name. Raises UsageError: there is none."""
    matching = repository.find_job(name_or_id)
    if matching is None:
        raise ResourceNotFound(f"there is no job {name_or_id!r}; see: gpuwatch jobs list")
    return matching


def select_watches(settings: Settings, names: Sequence[str]) -> list[Watch]:
    """The named watches; without names, all. Raises UsageError: there is none, or a name is unknown."""
    if not settings.watches:
        raise UsageError("there is no [[watch]]: write one (gpuwatch init), or use --gpu H100 --max-price 3.50")
    return [watch_named(settings, name) for name in dict.fromkeys(names)] or list(settings.watches)


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
