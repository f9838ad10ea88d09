"""The priority of a watch's queries at this moment. Pure."""

from __future__ import annotations

NEAR = 0.10  # assumed: an offer whose price exceeds the limit by less may soon be under it
SOON_S = 6 * 3600.0  # assumed: from then on, each remaining hour counts more
_STEP = 0.25  # a smaller change does not require a new plan
_LEAST, _MOST = 1.0, 4.0


def query_priority(
    limit_usd_hour: float | None, cheapest_usd_hour: float | None, deadline_left_s: float | None, arrivals: float
) -> float:
    """Return the priority, from 1 (normal) to 4.

    Args:
        limit_usd_hour: the listed limit of the query for the whole offer; None: no limit.
        cheapest_usd_hour: the cheapest offer that fits apart from its price; None: there is none, or it is unknown.
        deadline_left_s: seconds until it must have rented; None: no deadline.
        arrivals: how much more likely a price under the limit was at this hour of the day than at others.
    """
    found = _nearness(limit_usd_hour, cheapest_usd_hour) * _urgency(deadline_left_s) * min(max(arrivals, 1.0), 2.0)
    return min(max(round(found / _STEP) * _STEP, _LEAST), _MOST)


def _nearness(limit: float | None, cheapest: float | None) -> float:
    """Return 1 to 2: the nearer the cheapest offer is to the limit, the higher."""
    if limit is None or cheapest is None or limit <= 0:
        return 1.0
    return 1.0 + max(0.0, 1.0 - max(0.0, cheapest / limit - 1.0) / NEAR)


def _urgency(left_s: float | None) -> float:
    """Return 1 to 2: the less time is left, the higher."""
    return 1.0 if left_s is None else 1.0 + max(0.0, 1.0 - max(0.0, left_s) / SOON_S)
