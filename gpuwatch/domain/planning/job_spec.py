"""What an owner says of a job: how long it takes, and where; see `speed` for its hours and `job` for what it costs."""

from __future__ import annotations

import msgspec

from gpuwatch.domain.planning.figures import FigureRange, GpuAllocation, exactly


class GpuRate(msgspec.Struct, frozen=True):
    """A figure of some GPUs: tokens a second, or how many times as fast as the job's own GPUs."""

    on: GpuAllocation
    value: FigureRange


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job. How long it takes is known by its `hours` on some GPUs, or by its `tokens` and a speed."""

    hours: FigureRange | None = None
    on: GpuAllocation | None = None  # where it takes those hours; None: on whatever it is asked about
    speedup: tuple[GpuRate, ...] = ()  # other GPUs against `on`
    tokens: float | None = None
    tokens_per_s: tuple[GpuRate, ...] = ()
    flop: float | None = None  # arithmetic of the whole job
    utilisation: FigureRange | None = (
        None  # share of the data sheet's FLOP/s that arrives; also lets FLOP/s scale `hours`
    )
    fp8: bool = False  # … of the sheet's figure for 8 bits
    bf16: bool = False  # … which cards before Ampere do not reckon in
    scaling: float = 1.0  # what each further GPU adds, as a share of one GPU
    memory_gb: float = 0.0  # must lie in the GPUs together, without what each keeps for itself
    setup_s: FigureRange = exactly(0.0)  # at the first start alone
    load_s: FigureRange = exactly(0.0)  # at every start: the model's way into memory
    image_gb: float = 0.0  # pulled at every start
    download_mbps: float | None = None  # where an offer does not say how quick it is
    checkpoint_s: float | None = None  # between two checkpoints; None: what is not finished is lost
    within_s: float | None = None  # all of it, at worst
    interruptions_per_day: float = 0.0  # of what can be interrupted, while it runs
