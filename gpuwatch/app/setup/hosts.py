"""The daemons that share a PostgreSQL database: who leads, who stands by; the owner may ask another one to lead."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.app.owner_audit import audit_event
from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.engine.setup.leadership import role_of
from gpuwatch.storage.alerts.alert_rows import add_audit
from gpuwatch.storage.setup.daemon_lease import GONE_AFTER_S
from gpuwatch.storage.watches.running_hosts import KnownHost, LeaseHolder, is_turn, load_hosts, request_step_down

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

LEADS, STEPS_DOWN, STANDS_BY, GONE = "leads", "steps down", "stands by", "gone"
SEARCHES = "searches"
_SHARED_WITHIN = timedelta(hours=1)


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """One daemon; or an account whose searches the leaders of several owners share, with the daemon that has its turn.

    Attributes:
        holder: its name in the lease, another one for each process.
        role: "main", "main/OWNER"; of an account "PROVIDER/ACCOUNT".
        state: leads, steps down, stands by, or gone: it was not seen for 45 seconds; of an account "searches".
        since: when its lead began, or its turn; None: it does not lead.
        epoch: the number of its lead, or of its turn.
        is_rescued: it is in rescue mode, and rents nothing.
    """

    host: str
    role: str
    state: str
    since: datetime | None
    epoch: int | None
    version: str
    started_at: datetime
    seen_at: datetime
    holder: str
    is_rescued: bool

    @property
    def state_text(self) -> str:
        """Its state as a person reads it."""
        return f"{self.state}, rescue mode" if self.is_rescued and self.state in {LEADS, STANDS_BY} else self.state

    def json(self) -> dict[str, Any]:
        """JSON of `gpuwatch hosts`."""
        times = {name: rfc3339(getattr(self, name)) for name in ("since", "started_at", "seen_at")}
        return msgspec.structs.asdict(self) | times


def known_hosts(settings: Settings) -> list[HostView]:
    """The daemons of the last day by role, and the accounts that they share. With SQLite none: one runs at a time.

    Raises StoreError.
    """
    with open_store_read_only(settings) as store:
        if store.is_sqlite:
            return []
        with store.read() as connection:
            leases, hosts = load_hosts(connection)
    leaders = {(lease.role, lease.holder): lease for lease in leases if lease.expires_in_s > 0}
    now = real_now()
    by_holder = {host.holder: host for host in hosts}
    return [
        *(_view(host, leaders.get((host.role, host.holder)), now) for host in hosts),
        *(
            msgspec.structs.replace(_view(by_holder[turn.holder], turn, now), role=turn.role, state=SEARCHES)
            for turn in leases
            if is_turn(turn.role) and turn.holder in by_holder and now - turn.since < _SHARED_WITHIN
        ),
    ]


def _view(host: KnownHost, lease: LeaseHolder | None, now: datetime) -> HostView:
    state = GONE if host.seen_ago_s > GONE_AFTER_S else STANDS_BY
    if lease is not None:
        state = STEPS_DOWN if lease.steps_down else LEADS
    return HostView(
        host=host.host,
        role=host.role,
        state=state,
        since=None if lease is None else lease.since,
        epoch=None if lease is None else lease.epoch,
        version=host.version,
        started_at=host.started_at,
        seen_at=now - timedelta(seconds=host.seen_ago_s),
        holder=host.holder,
        is_rescued=host.is_rescued,
    )


class StepDown(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the owner: which host was asked, or why none. `text`: one line."""

    host: str | None
    text: str


def step_down(settings: Settings, *, actor: str) -> StepDown:
    """Ask the leader of these settings' owner to let another host lead. Raises StoreError: nothing was changed."""
    role = role_of(settings.owner)
    hosts = [host for host in known_hosts(settings) if host.role == role]
    leader = next((host.host for host in hosts if host.state in {LEADS, STEPS_DOWN}), None)
    if leader is None:
        return StepDown(host=None, text=f"no host leads in role {role!r}; nothing was changed")
    if not any(host.state == STANDS_BY for host in hosts):
        text = f"{leader} leads and no other host stands by; start one with `gpuwatch run`, then repeat this"
        return StepDown(host=None, text=text)
    with open_store(settings) as store, store.write() as connection:
        request_step_down(connection, role)
        add_audit(connection, audit_event(actor, f"{leader} asked to step down", subject="hosts"))
    return StepDown(host=leader, text=f"{leader} steps down; see: gpuwatch hosts")
