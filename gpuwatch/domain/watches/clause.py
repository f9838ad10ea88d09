"""A failed clause of a watch, and its description."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import OfferPrice
from gpuwatch.domain.watches.watch import Watch

FAR = 1.0  # the distance of a clause without a measure


class Failure(msgspec.Struct, frozen=True):
    """A clause that an offer does not satisfy. `off` is relative: 0.06 is 6 % too expensive, 1.0 is simply not met."""

    clause: str
    text: str
    off: float = FAR


Clause = Callable[[Watch, Offer, OfferPrice, datetime], Failure | None]
