"""The judge: compares promises with the cloud's own books, whatever gpuwatch stored.

CONTRACT, promise 1 (no double launch), 9 (nothing outlives its end) and 10 (an identity is never guessed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import select

from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.ports import MONEY_KINDS
from gpuwatch.storage.setup.side_tables import alert, delivery
from tests.soak.cloud import LABEL, Cloud, Rented, launch_id_in
from tests.soak.installation import MAX_INSTANCES, MAX_RUNTIME_S, MAX_USD_HOUR, WATCHES, Installation

PROMISES = (
    "doubles", "too many at once", "orphans", "past their end", "lost alerts", "budget overruns", "never at rest",
    "tracebacks",
)  # fmt: skip
GRACE_S = 120.0
LOOKS_S = 35.0  # between two polls of an installation that follows launches
ROUND_MS = 1_200_000  # of the last four rounds: alerts are sent in every fourth (`Installation.look`)
UNKNOWN = "neither label nor database names it"


class Judge:
    """Counts broken promises.

    Args:
        installations: the running ones; the caller changes the list.
        ongoing: current faults, for the texts.
    """

    def __init__(self, cloud: Cloud, installations: Sequence[Installation], ongoing: set[str]) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(PROMISES, 0))
        self.broken: list[str] = []
        self.late_s: dict[tuple[str, str], float] = {}  # (instance, why it does not count) → time past its end
        self._judged_s = 0.0
        self.dismissed: set[tuple[str, str]] = set()  # (installation, other one that it ignores)
        self._cloud, self._all, self._ongoing = cloud, installations, ongoing
        self._known: set[tuple[str, str]] = set()

    def ends(self) -> list[float]:
        return [end for one in self.ours().values() if (end := self._end_of(one)) is not None]

    def _end_of(self, one: Rented) -> float | None:
        """Return when its time is over by both clocks: after a restart, only the wall clock remains."""
        if one.seen_running_s is None or one.seen_running_at is None:
            return None
        by_wall_s = MAX_RUNTIME_S - (self._cloud.now() - one.seen_running_at).total_seconds()
        return max(one.seen_running_s + MAX_RUNTIME_S, self._cloud.tick_s + by_wall_s)

    def ours(self) -> dict[str, Rented]:
        return {i: one for i, one in sorted(self._cloud.rented.items()) if one.by}

    def audit(self) -> None:
        made = Counter(launch_id_in(one.ordered_label) for one in self._cloud.made)
        self.counts["creates"] = len(self._cloud.made)
        self.counts["doubles"] = sum(count - 1 for count in made.values())
        ours = {i: one for i, one in self.ours().items() if not (one.hidden or one.denied_until_s or one.is_unknowable)}
        for gpu, (name, active, _) in WATCHES.items():
            of_it = self._counted([(i, one) for i, one in ours.items() if one.gpu == gpu])
            if len(of_it) > active:
                self.note("too many at once", tuple(of_it), f"{name}: {of_it}")
        if {one.by for one in ours.values()} <= {"home"}:
            spent = sum(one.usd_hour * 1.2 for one in ours.values())
            if spent > MAX_USD_HOUR or len(ours) > MAX_INSTANCES:
                self.note("budget overruns", tuple(ours), f"{spent:.2f} $/h: {list(ours)}")
        self._ends_in_time()

    def _counted(self, alive: Sequence[tuple[str, Rented]]) -> list[str]:
        """Return the instances that the last ordering installation had to count.

        All except those that its owner assigned to another installation, those of another installation on an account
        whose lists it cannot see or with an edited label, and those that another one ordered since the second last poll
        of the list: a poll may fail.
        """
        if not alive:
            return []
        last = max((one for _, one in alive), key=lambda one: one.made_s)
        return [
            i
            for i, one in alive
            if one.by == last.by
            or (
                one.account == last.account
                and (last.by, one.by) not in self.dismissed
                and one.instance.label == one.ordered_label
                and last.made_s - one.made_s > 2 * LOOKS_S
            )
        ]

    def note(self, promise: str, key: tuple[str, ...], text: str) -> None:
        """Count it once for each set of instances."""
        if self.count_once(promise, key):
            self.broken.append(f"{self._cloud.tick_s:.0f} s: {promise}: {text}; {sorted(self._ongoing)}")

    def count_once(self, what: str, key: tuple[str, ...]) -> bool:
        """Whether it was new for this set of instances."""
        is_new = (what, ",".join(key)) not in self._known
        self._known.add((what, ",".join(key)))
        self.counts[what] += is_new
        return is_new

    def _ends_in_time(self) -> None:
        """Two minutes past its end no reachable instance exists; if it was unreachable, from its return.

        Only observed time counts: a step of many minutes is not gpuwatch's. Excluded cases are counted in rows of their
        own.
        """
        passed_s, self._judged_s = self._cloud.tick_s - self._judged_s, self._cloud.tick_s
        late = set(self._late())
        self.late_s = {of: self.late_s.get(of, 0.0) + (passed_s if passed_s <= LOOKS_S else 0.0) for of in late}
        for (instance_id, excuse), late_s in self.late_s.items():
            if late_s > GRACE_S and not excuse:
                self.note("past their end", (instance_id,), f"{instance_id} by {late_s:.0f} s")
            elif late_s > GRACE_S:
                self.count_once(f"past their end, but {excuse}", (instance_id,))

    def overdue(self) -> list[str]:
        """Return instances past their end that are reachable."""
        return [instance_id for instance_id, excuse in self._late() if not excuse]

    def _late(self) -> list[tuple[str, str]]:
        """Return instances past their end, and why they do not count; "" if they do."""
        return [
            (instance_id, self._excuse(instance_id, one))
            for instance_id, one in self.ours().items()
            if (end_s := self._end_of(one)) is not None and end_s <= self._cloud.tick_s
        ]

    def _excuse(self, instance_id: str, one: Rented) -> str:
        """Return why nothing could end it: denied, no answer, or not known as ours; "" if it could be ended."""
        if self._cloud.is_down:
            return "the provider is down"
        if one.hidden or (one.omitted and not self._cloud.has_lookup):
            return "the provider denies it"
        installation = next((each for each in self._all if each.name == one.by), None)
        if installation is None:
            return "its installation is switched off"
        if installation.wanted.key.partition(".")[0] != one.account:
            return "the key is another account's"
        return self._why_unknown(installation, instance_id, one)

    def _why_unknown(self, installation: Installation, instance_id: str, one: Rented) -> str:
        """Known are instances that their label names, and those that a database names, or named when it was lost."""
        is_labelled = one.instance.label == one.ordered_label
        if installation.is_database_gone:
            return "" if is_labelled or instance_id in installation.ids_when_lost else UNKNOWN
        launch = installation.service.launch_repository.get(launch_id_in(one.ordered_label))
        if launch is not None and launch.state is LaunchState.HELD:
            return "its launch is held: the owner was asked"
        return "" if launch is not None and (is_labelled or launch.instance_id == instance_id) else UNKNOWN

    def is_followed(self, instance_id: str, one: Rented) -> bool:
        for installation in self._all:
            if installation.is_database_gone:
                return True
            for launch in installation.alive():
                if launch.instance_id == instance_id or (
                    launch.instance_id is None and launch.launch_id == launch_id_in(one.ordered_label)
                ):
                    return True
        return False

    def reported(self, installation: Installation) -> set[str]:
        """Return the instances that an alert about orphans names."""
        with installation.store.read() as connection:
            bodies = connection.execute(select(alert.c.body).where(alert.c.kind == "orphan")).scalars().all()
        return {i for i in self._cloud.rented if any(f'"{i}"' in str(body) or f"{i}" in str(body) for body in bodies)}

    def count_orphans(self) -> None:
        """Return active instances with our label or order, without an active launch, unreported to the owner."""
        reported = self.reported(self._all[0])
        for instance_id, one in self._cloud.rented.items():
            labelled = (one.instance.label or "").startswith(LABEL)
            if (
                one.account != "main"
                or one.is_unknowable
                or not (labelled or one.by)
                or self.is_followed(instance_id, one)
            ):
                continue
            if instance_id in reported:
                self.counts["reported foreign instances"] += 1
            else:
                self.note("orphans", (instance_id,), f"{instance_id} {one.instance.label} by {one.by!r}")

    def lost_alerts(self, one: Installation) -> None:
        """Every stored alert about money has been sent, except those written in this round."""
        now_ms = int(self._cloud.now().timestamp() * 1000)
        with one.store.read() as connection:
            states = dict(connection.execute(select(delivery.c.alert_id, delivery.c.state)).all())
            written = connection.execute(
                select(alert.c.alert_id, alert.c.kind).where(alert.c.created_at_ms < now_ms - ROUND_MS)
            ).all()
        self.counts["alerts"] += len(written)
        self.counts["lost alerts"] += sum(kind in MONEY_KINDS and states.get(id_) != "sent" for id_, kind in written)
