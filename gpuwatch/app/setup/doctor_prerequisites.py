"""The findings of `gpuwatch doctor --provider` about the prerequisites of renting there, for the watches that rent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuwatch.app.setup.doctor_account import renting_watches
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.provider_access import has_credentials
from gpuwatch.engine.launches.renting.rehearsal import prerequisites_of, rehearsed_offers
from gpuwatch.errors import ProviderError
from gpuwatch.ports.findings import Finding

if TYPE_CHECKING:
    from gpuwatch.ports import Order
    from gpuwatch.ports.declarations import Adapter
    from gpuwatch.settings import Settings

_STATES = {True: "ok", False: "fault", None: "note"}


def prerequisite_findings(settings: Settings, adapter: Adapter) -> Iterator[Finding]:
    """One finding for each prerequisite. A provider where gpuwatch cannot rent has none."""
    launcher, info = adapter.launcher, adapter.info
    if launcher is None or not has_credentials(settings.providers[adapter.name]):
        return
    orders: list[Order] = []
    for watch in renting_watches(settings, adapter.name):
        try:
            commission = settings.providers[adapter.name].commission
            orders += rehearsed_offers(watch, adapter.market, commission, info, real_now).orders
        except ProviderError as error:
            text = f"cannot fetch offers for {watch.name!r}: {error}"
            yield Finding(area=adapter.name, state="note", text=text)
    if not orders:
        text = "no offer for a watch that rents: offer-specific prerequisites were not checked"
        yield Finding(area=adapter.name, state="note", text=text)
    docs = {spec.name: spec.docs for spec in info.prerequisites}
    for prerequisite in prerequisites_of(launcher, info, orders):
        place = f" ({prerequisite.place})" if prerequisite.place else ""
        mend = (
            f"{prerequisite.mend} (see {docs[prerequisite.name]})"
            if prerequisite.mend and prerequisite.met is False and prerequisite.name in docs
            else prerequisite.mend
        )
        text = f"{prerequisite.name.value}{place}: {prerequisite.text}"
        yield Finding(area=adapter.name, state=_STATES[prerequisite.met], text=text, mend=mend or None)
