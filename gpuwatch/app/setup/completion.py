"""Names for shell completion. A caller treats any error as "no names"."""

from __future__ import annotations

from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.errors import GpuwatchError


def watches(config: str | None) -> list[str]:
    """The names of the watches in the settings."""
    return [watch.name for watch in load_settings(config).watches]


def groups(config: str | None) -> list[str]:
    """The names of the groups of watches."""
    return list(load_settings(config).groups)


def checklists(config: str | None) -> list[str]:
    """Names with a checklist: the watches, and the jobs that are not over."""
    from gpuwatch.app.jobs.jobs import listed_jobs

    try:
        queued = [job.watch_name for job in listed_jobs(load_settings(config))]
    except GpuwatchError:  # no database yet
        queued = []
    return [*watches(config), *queued]


def gpus(_config: str | None) -> list[str]:
    """Families and models without spaces: gpuwatch accepts both spellings, but a shell would split the other one."""
    from gpuwatch.domain.market.gpu_names import catalog

    rows = catalog().gpus()
    return sorted({name.replace(" ", "-") for row in rows for name in (row.family, row.name)})


def providers(_config: str | None) -> list[str]:
    """All installed providers."""
    from gpuwatch.providers import names

    return list(names())


def launches(config: str | None) -> list[str]:
    """The ids of the launches, newest first."""
    from gpuwatch.app.launches.launches import all_launches

    return [launch.launch_id for launch in reversed(all_launches(load_settings(config, for_stopping=True)))]


def approvals(config: str | None) -> list[str]:
    """The ids of the approvals of the last week."""
    from gpuwatch.app.launches.approvals import recent_approvals

    return [approval.approval_id for approval in recent_approvals(load_settings(config))]


def jobs(config: str | None) -> list[str]:
    """The names of the jobs, newest first."""
    from gpuwatch.app.jobs.job_series import listed_series
    from gpuwatch.app.jobs.jobs import listed_jobs

    settings = load_settings(config, for_stopping=True)
    recurring = [one.name for one in listed_series(settings)]
    return recurring + [job.name for job in reversed(listed_jobs(settings, all_jobs=True))]
