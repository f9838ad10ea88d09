"""One checked thing: a line of `gpuwatch doctor`, of a rehearsal, and of what must be there before a first rent.

Providers and channels add their own.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check.

    Attributes:
        area: what was checked, such as "settings", "database" or a provider; empty: gpuwatch itself.
        state: "ok", "note" (works, but worth knowing), "unknown" (no answer) or "fault" (exit code 1).
        mend: how to fix it.
        name: which of several checks of the area, such as a prerequisite; empty: there is one.
        place: the region, zone or family; empty: everywhere.
        docs: page and heading with the explanation.
    """

    area: str
    state: str
    text: str
    mend: str | None = None
    name: str = ""
    place: str = ""
    docs: str | None = None


def finding_json(finding: Finding) -> dict[str, Any]:
    """JSON of one line of `gpuwatch doctor`."""
    place = f" ({finding.place})" if finding.place else ""
    see = f" (see {finding.docs})" if finding.docs and finding.mend and finding.state == "fault" else ""
    return {
        "area": finding.area,
        "state": "note" if finding.state == "unknown" else finding.state,
        "text": f"{finding.name}{place}: {finding.text}" if finding.name else finding.text,
        "mend": f"{finding.mend}{see}" if finding.mend else None,
    }
