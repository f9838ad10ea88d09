"""Take over what another owner stored in this database: after its hosts are gone, or when two lists become one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.watches.owner_names import is_owner
from gpuwatch.engine.setup.leadership import role_of
from gpuwatch.errors import UsageError
from gpuwatch.storage.watches import take_over as rows
from gpuwatch.storage.watches.running_hosts import leading_host

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


def take_over(
    settings: Settings, names: Sequence[str], *, previous: str, everything: bool, actor: str, is_sure: bool = False
) -> rows.TakenOver:
    """Give watches of another owner, with their launches, alerts, pauses and limits, to the owner of these settings.

    Args:
        names: of watches; none with `everything`, which takes all of them, and the jobs.
        previous: the other owner; "": the installation.
        is_sure: also while a host of the other owner leads; one that still has the watches in its list begins anew.

    Raises:
        UsageError: the owners are the same, a name is missing, a host of the other owner leads, or this one has an open
            job of the same name.
        StoreError: nothing was changed.
    """
    if not is_owner(previous):
        raise UsageError(f"--from {previous!r}: expected letters, digits, - and _, at most 16")
    if previous == settings.owner:
        raise UsageError("--from: these settings have the same owner; there is nothing to take over")
    if bool(names) == everything:
        raise UsageError("name the watches to take over, or use --all")
    what = "everything" if everything else f"watches {', '.join(names)}"
    of = f"owner {previous}" if previous else "the installation"
    audit = audit_event(actor, f"took over {what} of {of}", subject=settings.owner or "installation")
    with open_store(settings) as store:
        if not is_sure and (host := leading_host(store, role_of(previous))) is not None:
            raise UsageError(f"{host} leads for {of}: stop its hosts first, or remove the watches there and use --yes")
        return rows.take_over(
            store,
            None if everything else names,
            previous=previous,
            owner=settings.owner,
            now=real_now(),
            audit=audit,
        )
