"""What judges an offer for a watch, and what it says of one that it rejects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.market.pricing import OfferPrice
from gpuwatch.domain.watches.watch import Watch

FAR = 1.0  # the distance of a clause that is simply not met


class Failure(msgspec.Struct, frozen=True):
    """A clause that an offer does not satisfy. `off` is relative: 0.06 is 6 % too expensive, 1.0 is not at all."""

    clause: str
    text: str
    off: float = FAR


Clause = Callable[[Watch, Offer, OfferPrice, datetime], Failure | None]
