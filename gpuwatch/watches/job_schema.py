"""What an owner may write in `[watch.job]`."""

from __future__ import annotations

from gpuwatch.planning.job_spec import JobSpec
from gpuwatch.watches.fields import Table


class JobTable(Table):
    """`[watch.job]`: the job that `max_job_cost` is about."""

    def value(self) -> JobSpec:
        """As the engine uses it."""
        return JobSpec()
