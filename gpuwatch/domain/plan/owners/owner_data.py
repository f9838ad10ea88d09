"""What comes with gpuwatch about owners: their kinds, grants and credits, and the large clouds. Read once."""

from __future__ import annotations

import csv
import tomllib
from datetime import date
from decimal import Decimal
from functools import cache
from importlib.resources import files

import msgspec

from gpuwatch.domain.plan.owners.owner_cases import Cloud, CreditProgram, OwnerCase

_DATA = files("gpuwatch.domain.plan.owners")


@cache
def owner_cases() -> dict[str, OwnerCase]:
    """The kinds of owners."""
    tables = tomllib.loads((_DATA / "owner-cases.toml").read_text(encoding="utf-8"))
    return {name: msgspec.convert({"name": name} | table, OwnerCase) for name, table in tables.items()}


def _rows(name: str) -> list[dict[str, str]]:
    lines = [line for line in (_DATA / name).read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@cache
def credit_programs() -> tuple[CreditProgram, ...]:
    """Grants and credits, each with its page and the day when it was read."""
    return tuple(
        CreditProgram(
            name=row["program"],
            provider=row["provider"],
            cases=tuple(row["cases"].split()),
            usd=Decimal(row["usd"]) if row["usd"] else None,
            days=int(row["days"]) if row["days"] else None,
            open=row["open"] == "yes",
            who=row["who"],
            url=row["url"],
            looked_up=date.fromisoformat(row["looked_up"]),
            page_date=date.fromisoformat(row["page_date"]) if row["page_date"] else None,
        )
        for row in _rows("credits.csv")
    )


@cache
def large_clouds() -> tuple[Cloud, ...]:
    """AWS, Google Cloud and Azure."""
    return tuple(
        Cloud(
            provider=row["provider"],
            for_whom=row["for_whom"],
            url=row["url"],
            commitment=row["commitment"],
            up_to_percent=Decimal(row["up_to_percent"]),
            commitment_url=row["commitment_url"],
        )
        for row in _rows("clouds.csv")
    )
