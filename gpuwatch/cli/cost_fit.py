"""How a calibration looks: what each commission would have foretold, and what to write into the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.tables import left, right, table, text

if TYPE_CHECKING:
    from gpuwatch.domain.launches.calibration import Calibration, CommissionCandidate

_COLUMNS = (text("commission"), left("as a setting"), right("off by, median"))


def print_calibration(found: Calibration) -> None:
    """One provider: the sample, the candidates, the advice."""
    if found.why_not is not None:
        click.echo(f"{found.provider}: {found.why_not}")
        return
    rows = [
        (
            _title(one) + (" ← fits best" if one == found.best else ""),
            one.text if one.rate >= 0 else "–",
            f"{one.error_percent:.2f} %",
        )
        for one in found.candidates
    ]
    table(_COLUMNS, rows, title=_sample(found))
    if found.is_poor:
        click.echo("none of them foretells the bill well; look at: gpuwatch costs --by launch")
    if found.advice is None:
        click.echo("the commission that is set fits best; nothing is to be changed")
    else:
        click.echo(f"nothing was changed; to take it over, put this into the settings:\n\n{found.advice}\n")


def _title(one: CommissionCandidate) -> str:
    if one.name == "set":
        return "as it is set now"
    if one.name == "included":
        return "included: the listed price is the bill"
    if one.name == "on_top":
        return "the set rate, on top"
    return "fitted by least squares" if one.rate >= 0 else "fitted: the bill is under the listed price"


def _sample(found: Calibration) -> str:
    left_out = f"; {found.left_out} left out: nothing charged" if found.left_out else ""
    return (
        f"{found.provider}: {found.launches} launches, {found.billed_hours:.1f} billed hours,"
        f" final days {found.first_day} to {found.last_day} (UTC), traffic apart{left_out}"
    )
