"""Selects which accepted offers can be rented now, and describes the selection for the alert.

State shared by evaluation, launching and reconciliation: which watches may rent more, and requests in flight.

Builds the order for a launch and its candidate. Pure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Protocol

import msgspec

from gpuwatch.domain.launches.launch import Launch, LaunchRefusal, RefusalReason
from gpuwatch.domain.market.money import rfc3339
from gpuwatch.domain.watches.computed_limits import quoted_bid_usd_hour
from gpuwatch.domain.watches.decide import Decision, Match
from gpuwatch.domain.watches.match import wanted_places
from gpuwatch.domain.watches.watch import LaunchSpec, RegistrySpec, VolumeSpec, Watch
from gpuwatch.ports import Order, Registry, Volume

# (provider, micro-dollars per hour, name of the watch) → why nothing can be rented there now
WhyNotReady = Callable[[str, int, str], str | None]


class StartsLaunches(Protocol):
    """Rents a reserved launch (see `launch_executor`)."""

    def not_ready(self, provider: str, price_microusd_hour: int, watch: str) -> str | None:
        """Return why nothing can be rented there at this price for this watch now, or None. Raises StoreError."""

    def start(self, launch: Launch, watch: Watch, candidates: Sequence[Match]) -> None:
        """Rent it on another thread; the reserved candidate comes first."""


class UnavailableProviders(msgspec.Struct, frozen=True, kw_only=True):
    """Providers at which gpuwatch cannot rent with these settings."""

    no_launcher: Collection[str] = frozenset()
    no_key: Collection[str] = frozenset()

    def why_not(self, provider: str) -> str | None:
        """Return the reason as a clause; None: it can rent there."""
        if provider in self.no_launcher:
            return f"gpuwatch cannot rent at {provider}"
        return f"there is no key for {provider}" if provider in self.no_key else None

    def able(self, found: Sequence[Match], dry_run: bool) -> list[Match]:
        """Return the matches that can be rented, in the same order.

        A dry run without any key still shows what it would rent with a key.
        """
        keyed = [match for match in found if self.why_not(match.offer.provider) is None]
        if keyed or not dry_run:
            return keyed
        return [match for match in found if match.offer.provider not in self.no_launcher]

    def why_none(self, found: Sequence[Match]) -> str:
        """Return why none of these matches can be rented, by provider: "gpuwatch cannot rent at azure"."""
        reasons = dict.fromkeys(self.why_not(match.offer.provider) for match in found)
        return "; ".join(reason for reason in reasons if reason)


def select_candidates(
    found: Sequence[Match], unable: UnavailableProviders, not_ready: WhyNotReady, dry_run: bool, watch: str
) -> tuple[list[Match], str]:
    """Return the matches that can be rented now, cheapest first. A dry run needs no balance and no instance list.

    Args:
        found: at least one match, cheapest first.

    Returns:
        The candidates, and a text: why there are none, or why cheaper matches are left out, or "".
    """
    able = unable.able(found, dry_run)
    are_able = {id(match) for match in able}
    if not able:
        return [], unable.why_none(found)
    checked = [(m, None if dry_run else not_ready(m.offer.provider, m.price.price_microusd_hour, watch)) for m in able]
    ready = [match for match, why in checked if why is None]
    if not ready:
        reasons = [why for _, why in checked if why is not None]
        beyond = unable.why_none([match for match in found if id(match) not in are_able])
        return [], "; ".join(dict.fromkeys([reasons[0], *([beyond] if beyond else [])]))
    cheaper = [match for match in takewhile(lambda match: match is not ready[0], found) if id(match) not in are_able]
    return ready, unable.why_none(cheaper)


def with_rented_offer_first(decision: Decision, rented: Match | None) -> Decision:
    """Return the decision with the rented offer first, because the alert is about it. None: unchanged."""
    if rented is None or not decision.matches or decision.matches[0] is rented:
        return decision
    others = [match for match in decision.matches if match is not rented]
    return msgspec.structs.replace(decision, matches=(rented, *others))


def reservation_summary(started: Sequence[Launch], refusal: LaunchRefusal | None, left_out: str) -> str:
    """Describe in a sentence or two what was done about the matches; empty: there was nothing to do.

    Args:
        started: the launches; the offer of the first one is the first in the alert.
        left_out: why cheaper matches are left out.
    """
    if not started:
        return f"Not rented: {refusal.text}." if refusal else ""
    why = f" A cheaper offer was skipped: {left_out}." if left_out else ""
    if started[0].dry_run:
        return f"Dry run: gpuwatch would rent it now (dry_run = true).{why}"
    ids = ", ".join(launch.launch_id for launch in started)
    if len(started) == 1:
        return f"Renting it now: launch {ids}.{why}"
    return f"Renting {len(started)} now: launches {ids}.{why}"


def is_same_offer(match: Match, reserved: Match) -> bool:
    """Whether both are one offer. A spot twin counts as the same: a machine is rented once."""
    one, other = match.offer, reserved.offer
    return (one.provider, one.offer_id) == (other.provider, other.offer_id)


def reserved_first(reserved: Match, left: Sequence[Match]) -> tuple[Match, ...]:
    """Return the candidates of a launch: the reserved offer, then the next best of any provider."""
    return (reserved, *(match for match in left if match is not reserved))


# The owner can lift these at any moment, and a cooldown ends soon. A checklist may stay open for days: polling at full
# pace would use up the day's rows.
_MAY_END_ANY_MOMENT = {RefusalReason.PAUSED, RefusalReason.BREAKER, RefusalReason.COOLING}


def _nothing(_task: str) -> None:
    """Do nothing: there is no scheduler."""


class LaunchSlots:
    """Free slots by watch, as of the last reservation, and the launches whose requests are in flight.

    Thread-safe.

    Args:
        run_now: runs a periodic task, by name, ahead of its time.
        when_freed: the tasks to run when a slot becomes free.
    """

    def __init__(self, run_now: Callable[[str], None] = _nothing, when_freed: Sequence[str] = ()) -> None:
        self.run_now = run_now
        self._when_freed = tuple(when_freed)
        self._full: set[str] = set()  # watches that could start no further launch at the last attempt
        self._blocked: set[str] = set()  # watches that could start none at all, whatever was on offer
        self._in_flight: set[str] = set()
        self._alive: dict[str, Launch] = {}  # as of the last `note_alive`, by id
        self._lock = threading.Lock()

    def is_full(self, watch: str) -> bool:
        """Whether its last reservation found no free slot or no money."""
        return watch in self._full

    def is_blocked(self, watch: str) -> bool:
        """Whether anything, such as a pause or an empty balance, blocked its last reservation."""
        return watch in self._blocked

    def note_reservation(self, watch: str, refusal: LaunchRefusal | None) -> None:
        """Store the result of the newest reservation; None: every candidate was reserved."""
        self._blocked.discard(watch) if refusal is None else self._blocked.add(watch)
        if refusal is None:
            self._full.discard(watch)
        elif refusal.reason not in _MAY_END_ANY_MOMENT:
            self._full.add(watch)

    def hold(self, watch: str) -> None:
        """Note that there were matches, but none can be rented now."""
        self._blocked.add(watch)

    def unblock(self, watches: Iterable[str]) -> None:
        """Note that there was no match, so that it is unknown whether a launch would be blocked."""
        self._blocked.difference_update(watches)

    def free(self, watch: str) -> None:
        """Note that a launch of this watch failed or ended, so that its slot is free."""
        self._full.discard(watch)
        self._blocked.discard(watch)

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches."""
        self._full.intersection_update(watches)
        self._blocked.intersection_update(watches)

    def launch_over(self, launch: Launch) -> None:
        """Free the slot and poll at once, because the watch may take the next offer."""
        self._alive.pop(launch.launch_id, None)
        self.free(launch.watch)
        for task in self._when_freed:
            self.run_now(task)

    def note_alive(self, alive: Iterable[Launch]) -> None:
        """Free the slots of launches that another process has ended since the last call: a command, another host."""
        before, self._alive = self._alive, {launch.launch_id: launch for launch in alive}
        for launch_id in before.keys() - self._alive.keys():
            self.launch_over(before[launch_id])

    def in_flight(self) -> frozenset[str]:
        """Return the launches whose requests are in flight: no other code may change them."""
        with self._lock:
            return frozenset(self._in_flight)

    @contextmanager
    def requesting(self, launch: Launch) -> Iterator[None]:
        """Mark a launch as in flight inside the block."""
        with self._lock:
            self._in_flight.add(launch.launch_id)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight.discard(launch.launch_id)


def build_order(launch: Launch, match: Match, watch: Watch, public_key: str | None = None) -> Order:
    """Build the order for one candidate. A spot offer always carries its bid: without one the rental is on demand.

    Args:
        public_key: a key that the instance must accept in addition to those of the account.
    """
    offer, spec = match.offer, watch.launch or LaunchSpec()
    return Order(
        offer_id=offer.offer_id,
        label=launch.label,
        image=spec.image,
        disk_gb=watch.disk_gb if watch.disk_gb is not None else offer.quoted_disk_gb,
        bid_usd_hour=quoted_bid_usd_hour(offer) if offer.spot else None,
        onstart=_letting_in(public_key, spec.onstart),
        env=_environment(spec) | launch_environment(launch) | ({"PUBLIC_KEY": public_key} if public_key else {}),
        ports=spec.ports,
        runtype=spec.runtype,
        template=spec.template,
        registry=_registry(spec.registry),
        volume=_volume(spec.volume),
        places=wanted_places(watch, offer),
        self_destruct_at=launch.deadline if spec.self_destruct else None,
        deadline=launch.deadline,
        needs_ssh=public_key is not None,
    )


def _letting_in(public_key: str | None, onstart: str | None) -> str | None:
    """Return the start script, preceded by one that authorises the key; some images do so themselves (PUBLIC_KEY)."""
    return onstart if public_key is None else _LETTING_IN.replace("@KEY@", public_key) + (onstart or "")


# Authorises the key for the login user: root of a container, or the user of a VM image (its script runs as root).
_LETTING_IN = """\
for home in "${HOME:-/root}" /root /home/*; do
[ -d "$home" ] && mkdir -p "$home/.ssh" || continue
grep -qsxF '@KEY@' "$home/.ssh/authorized_keys" || echo '@KEY@' >>"$home/.ssh/authorized_keys"
chmod 700 "$home/.ssh"; chmod 600 "$home/.ssh/authorized_keys"; chown -R --reference="$home" "$home/.ssh"
done
"""


def launch_environment(launch: Launch) -> dict[str, str]:
    """Return the environment variables that describe its launch, for every instance."""
    variables = {"GPUWATCH_LAUNCH_ID": launch.launch_id, "GPUWATCH_WATCH": launch.watch}
    if launch.deadline is not None:
        variables["GPUWATCH_DEADLINE"] = rfc3339(launch.deadline)
    return variables


def _environment(spec: LaunchSpec) -> dict[str, str]:
    return spec.env | {name: secret.reveal() for name, secret in spec.secret_env.items()}


def _registry(spec: RegistrySpec | None) -> Registry | None:
    if spec is None:
        return None
    return Registry(server=spec.server, username=spec.username, password=spec.password.reveal())


def _volume(spec: VolumeSpec | None) -> Volume | None:
    return None if spec is None else Volume(mount=spec.mount, volume_id=spec.volume_id, size_gb=spec.size_gb)
