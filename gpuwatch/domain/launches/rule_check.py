"""What a rule of the admission says about a launch, with its figures: for the refusal, and for a person. Pure."""

from __future__ import annotations

from datetime import datetime

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason


class RuleCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What one rule of the admission says about a launch. Amounts are in micro-dollars, others are counts.

    Attributes:
        rule: the reason that it gives when it refuses.
        refusal: None: it allows the launch.
        used: what is used of the limit without the launch.
        cost: what the launch would add.
        until: when it ends by itself.
        why: the owner's words, or what failed.
        of_watch: whether it is a rule of this watch alone.
        lasts_s: the time that the cost covers.
    """

    rule: RefusalReason
    refusal: LaunchRefusal | None = None
    used: int = 0
    cost: int = 0
    limit: int | None = None
    until: datetime | None = None
    why: str = ""
    of_watch: bool = False
    lasts_s: float = 0.0
