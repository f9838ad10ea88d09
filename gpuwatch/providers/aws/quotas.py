"""Which EC2 quota an instance counts against, and how much of it is in use. Pure.

Quotas are in vCPUs, per region, family and market.
source: AWS's page of EC2 endpoints and quotas, read 2026-11. It does not say which quota applies to p6 as spot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from gpuwatch.providers.aws.offers import OfferId
from gpuwatch.providers.toolkit.validation import at, number, objects

_G_ON_DEMAND, _P_ON_DEMAND = "L-DB2E81BA", "L-417A185B"
_G_SPOT, _P2_TO_P4_SPOT, _P5_SPOT = "L-3819A6DF", "L-7212CCBC", "L-C4BD4855"
_COUNTED_STATES: Final = frozenset({"pending", "running"})


class VcpuQuota(NamedTuple):
    """One quota. `code` None: unknown."""

    title: str
    code: str | None
    families: str  # pattern of the instance types that it counts
    spot: bool


_QUOTAS: Final = (
    VcpuQuota("G and VT on demand", _G_ON_DEMAND, r"(g|gr|vt)\d", spot=False),
    VcpuQuota("P on demand", _P_ON_DEMAND, r"p\d", spot=False),
    VcpuQuota("G and VT as spot", _G_SPOT, r"(g|gr|vt)\d", spot=True),
    VcpuQuota("P2 to P4 as spot", _P2_TO_P4_SPOT, r"p[234]", spot=True),
    VcpuQuota("P5 as spot", _P5_SPOT, r"p5", spot=True),
)


def quota_of(offer: OfferId) -> VcpuQuota:
    """Return the quota that an offer counts against."""
    for one in _QUOTAS:
        if one.spot is offer.spot and re.match(one.families, offer.type):
            return one
    family = offer.type.partition(".")[0]
    return VcpuQuota(f"{family} {'as spot' if offer.spot else 'on demand'}", None, re.escape(family), offer.spot)


def vcpus_in_use(reservations: Iterable[object], quota: VcpuQuota) -> float:
    """Return the vCPUs of running instances that count against a quota, from `DescribeInstances`."""
    used = 0.0
    for one in objects(list(reservations)):
        for row in objects(one.get("Instances")):
            is_spot = row.get("InstanceLifecycle") == "spot"
            if at(row, "State", "Name") not in _COUNTED_STATES or is_spot is not quota.spot:
                continue
            if re.match(quota.families, str(row.get("InstanceType"))):
                cores = number(at(row, "CpuOptions", "CoreCount"), 1.0, 1e5) or 0.0
                used += cores * (number(at(row, "CpuOptions", "ThreadsPerCore"), 1.0, 8.0) or 1.0)
    return used
