"""The keys of `gpuwatch plan parallel`, each declared once. Pure."""

from __future__ import annotations

from pydantic import Field

from gpuwatch.domain.plan.workload import ModelKeys
from gpuwatch.domain.setup.fields import Line, Measure, Whole, Words


class ParallelRequest(ModelKeys):
    """A model, and the cards that share it."""

    candidates: Words = Field(default=(), description='The cards: "16x H100 SXM".')
    per_machine: Whole = Field(
        default=8, ge=1, le=72, description="Cards of one machine. Default: 8, or all of them if there are fewer."
    )
    machine: Line | None = Field(
        default=None, description="Machine type of a cloud, whose network rate is known: p5.48xlarge."
    )
    network_gbps: Measure | None = Field(
        default=None, description="Network of a machine to the others, in Gbit/s (InfiniBand, EFA, Ethernet)."
    )
