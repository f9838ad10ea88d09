"""Which part of the market a question is about."""

from __future__ import annotations

import msgspec


class MarketFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the market. None: whatever it is.

    `provider` None: all that is or was live, imported prices too; "vastai": that one, with what was imported of it;
    "gcp:listed": what it lists without proof of stock.
    """

    gpus: tuple[str, ...] | None = None  # canonical names or families
    provider: str | None = None
    gpu_count_min: int | None = None
    gpu_count_max: int | None = None
    spot: bool | None = None

    def has_count(self, gpu_count: int) -> bool:
        """Is an offer of so many GPUs meant?"""
        return (self.gpu_count_min or 1) <= gpu_count and (
            self.gpu_count_max is None or gpu_count <= self.gpu_count_max
        )

    def has_spot(self, spot: bool) -> bool:
        """Is this rental type meant?"""
        return self.spot is None or self.spot == spot

    def has_gpu(self, gpu: str, family: str, models: frozenset[str]) -> bool:
        """Is this GPU meant? "RTX 4090" is a family too: where it is among the `models` there are, it is the model."""
        return self.gpus is None or gpu in self.gpus or (family in self.gpus and family not in models)
