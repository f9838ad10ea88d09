"""How much more than others a watch is worth asking for at this moment. Pure."""

from __future__ import annotations

NEAR = 0.10  # assumed: an offer that is dearer than the limit by less may soon be under it
SOON_S = 6 * 3600.0  # assumed: from then on every hour that is left counts more
_STEP = 0.25  # a smaller change does not remake the plan
_LEAST, _MOST = 1.0, 4.0


def heat_of(
    limit_usd_hour: float | None, cheapest_usd_hour: float | None, deadline_left_s: float | None, arrivals: float
) -> float:
    """From 1 (as any other) to 4.

    Args:
        limit_usd_hour: what is asked for, listed, of the whole offer; None: no limit.
        cheapest_usd_hour: the cheapest offer that fits but for its price; None: there is none, or it is not known.
        deadline_left_s: until it must have rented; None: there is no deadline.
        arrivals: how much likelier than at other hours of the day a price under the limit was at this hour.
    """
    found = _nearness(limit_usd_hour, cheapest_usd_hour) * _urgency(deadline_left_s) * min(max(arrivals, 1.0), 2.0)
    return min(max(round(found / _STEP) * _STEP, _LEAST), _MOST)


def _nearness(limit: float | None, cheapest: float | None) -> float:
    """1, or up to 2 the nearer the cheapest offer is to the limit."""
    if limit is None or cheapest is None or limit <= 0:
        return 1.0
    return 1.0 + max(0.0, 1.0 - max(0.0, cheapest / limit - 1.0) / NEAR)


def _urgency(left_s: float | None) -> float:
    """1, or up to 2 the less time is left."""
    return 1.0 if left_s is None else 1.0 + max(0.0, 1.0 - max(0.0, left_s) / SOON_S)
