"""What a provider answers about its instances: lists, lookups by id, and what is wrong with these answers.

- `InstanceListing`: one complete listing, by id and by label. `look_up`: one instance by its id, if the provider
  supports that.
- `InstanceListMonitor` reports once that the list or the account is unavailable, and once that it is back. This matters
  while something is rented there, and while it blocks renting: instances of an unknown account are unknown. The hunt
  has its own check (`HealthMonitor`): it stays healthy with a key that can search but not list.
- `Contradictions`: two answers that contradict each other are reported once a day if they last.
- `UnknownStatuses`: status words that gpuwatch does not know are reported once each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from gpuwatch.domain.alerts.alert import OutboxAlert
from gpuwatch.domain.alerts.launch_texts import CONTRADICTION, LIST_MISSING, NOTHING_RENTED, UNKNOWN_STATUS
from gpuwatch.domain.launches.instance import LABEL_PREFIX, launch_id_in
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.engine.alerts.alert_reporter import AlertReporter, SeenValues
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.followed_launch import FollowedLaunches
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderError, StoreError
from gpuwatch.ports import (
    Instance,
    InstanceLookup,
    InstanceState,
    Launcher,
    UnitOfWorkFactory,
)
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

ALERT_AFTER_S = 600.0
BLOCKED_AFTER_S = 120.0  # no list since the start, so nothing is rented; assumed: a provider restarts in less time
_OFTEN = 3  # a list that lags briefly is not reported
_KIND = "status"


class InstanceListing:
    """One complete listing, by id and by label."""

    def __init__(self, instances: Sequence[Instance]) -> None:
        instances = [instance for instance in instances if instance.state is not InstanceState.ENDED]
        self.by_id = {instance.instance_id: instance for instance in instances}
        self._by_label: dict[str, Instance] = {}
        for instance in sorted(instances, key=lambda instance: instance.instance_id):
            launch_id = launch_id_in(instance.label)
            if launch_id is not None:
                self._by_label.setdefault(launch_id, instance)

    def of(self, launch: Launch) -> Instance | None:
        """Return its instance: by id, which an owner cannot edit; by label only if the id is unknown."""
        if launch.instance_id is not None:
            return self.by_id.get(launch.instance_id)
        return self._by_label.get(launch.launch_id)

    def labelled(self) -> Iterator[Instance]:
        """Yield every instance whose label claims that gpuwatch created it, rightly or not."""
        return (instance for instance in self.by_id.values() if (instance.label or "").startswith(LABEL_PREFIX))

    def foreign(self) -> set[str]:
        """Return the ids of instances that gpuwatch did not create."""
        ours = {instance.instance_id for instance in self.labelled()}
        return set(self.by_id) - ours


class LookupAnswer(msgspec.Struct, frozen=True):
    """The provider's answer about one id.

    Attributes:
        is_known: there was an answer; if False, only the list counts.
        instance: None: the instance is gone, if `is_known`.
        ended: it is gone, and the provider states how it ended.
    """

    is_known: bool
    instance: Instance | None = None
    ended: Instance | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the provider states that it is gone."""
        return self.is_known and self.instance is None


def look_up(launcher: Launcher, instance_id: str) -> LookupAnswer:
    """Look it up.

    Two failures count as a missing lookup: an answer in an unknown form, such as a 404 of a server without that
    address, and a key that can list instances but not look one up.

    Raises:
        ProviderError: no answer; try again.
    """
    if not isinstance(launcher, InstanceLookup):
        return LookupAnswer(False)
    try:
        found = launcher.get(instance_id)
    except (PayloadChanged, KeyRejected) as error:
        log.warning("instance %s: cannot be looked up by its id; using the list only: %s", instance_id, error)
        return LookupAnswer(False)
    if found is not None and found.state is InstanceState.ENDED:
        return LookupAnswer(True, ended=found)
    return LookupAnswer(True, found)


def instance_by_id(launcher: Launcher, instance_id: str) -> Instance | None:
    """Return one instance, by its lookup if possible, which shows more than the list. Raises ProviderError."""
    answer = look_up(launcher, instance_id)
    if answer.is_known:
        return answer.instance
    return next((instance for instance in launcher.list_instances() if instance.instance_id == instance_id), None)


class InstanceListMonitor:
    """Tracks how long one provider's instance list has been unavailable.

    Args:
        monotonic: seconds.
    """

    def __init__(self, reporter: AlertReporter, provider: str, monotonic: Callable[[], float]) -> None:
        self._reporter = reporter
        self._provider = provider
        self._monotonic = monotonic
        self._since_s: float | None = None
        self._is_reported = False  # this silence; one that begins in a period with an alert, in the next period
        self._may_be_reported = True  # this silence or an earlier one, perhaps by an earlier process

    def failed(self, error: ProviderError, alive: int, now: datetime, *, is_blocked: bool = False) -> None:
        """Note that there was no usable list; `alive` is the number of active launches there.

        Args:
            is_blocked: there was none since the start, and something would be rented there.
        """
        if self._since_s is None:
            self._since_s = self._monotonic()
        missing_s, spec = self._monotonic() - self._since_s, None
        if alive and missing_s > ALERT_AFTER_S:
            spec = LIST_MISSING
        elif not alive and is_blocked and missing_s > BLOCKED_AFTER_S:
            spec = NOTHING_RENTED
        if spec is None or self._is_reported:
            return
        launches = count_text(alive, "launch is", "launches are")
        self._is_reported = bool(
            self._reporter.report_spec(spec, now, subject=self._provider, launches=launches, error=redact(str(error)))
        )
        self._may_be_reported = self._may_be_reported or self._is_reported

    def list_succeeded(self, now: datetime) -> None:
        """Note a complete list."""
        self._since_s, self._is_reported = None, False
        if self._may_be_reported:
            both = (LIST_MISSING, NOTHING_RENTED)
            done = [self._reporter.resolve(spec, now, subject=self._provider) for spec in both]
            self._may_be_reported = not all(done)


class Contradictions:
    """Counts contradictions by launch.

    Args:
        monotonic: seconds.
    """

    def __init__(
        self,
        reporter: AlertReporter,
        launch_alerts: LaunchAlerts,
        followed: FollowedLaunches,
        monotonic: Callable[[], float],
    ) -> None:
        self._followed = followed
        self._reporter = reporter
        self._launch_alerts = launch_alerts
        self._monotonic = monotonic

    def note(self, launch: Launch, why: str, lasting_s: float, now: datetime) -> None:
        """Note that two answers about a launch contradict each other; report it after `lasting_s`, once a day."""
        one, tick_s = self._followed.of(launch), self._monotonic()
        one.contradicted_since_s = tick_s if one.contradicted_since_s is None else one.contradicted_since_s
        one.contradictions += 1
        if one.contradictions >= _OFTEN and tick_s - one.contradicted_since_s >= lasting_s:
            fields = {"instance_id": launch.instance_id, "why": why}
            self._reporter.report(self._launch_alerts.of(CONTRADICTION, launch, now, **fields))

    def clear(self, launch: Launch) -> None:
        """Note that the answers agree again."""
        one = self._followed.of(launch)
        one.contradicted_since_s, one.contradictions = None, 0


class UnknownStatuses:
    """Reports status words of one provider that gpuwatch does not know."""

    def __init__(self, provider: str, uow_factory: UnitOfWorkFactory, new_id: Callable[[], str]) -> None:
        self._seen = SeenValues(provider, uow_factory)
        self._new_id = new_id

    def check(self, instances: Iterable[Instance], now: datetime) -> None:
        """Alert about words that are new, in the transaction that records them. A failing store delays the report."""
        words = sorted({one.unknown_status for one in instances if one.unknown_status is not None})
        try:
            new = self._seen.new(_KIND, words, now, lambda new: self._alert(new, now))
        except StoreError as error:
            log.warning("%s: cannot report unknown status words yet: %s", self._seen.provider, error)
            return
        for word in new:
            log.warning("a status of an instance that is not known: %s", word, extra={"provider": self._seen.provider})

    def _alert(self, new: Sequence[str], now: datetime) -> OutboxAlert:
        newest, words = ", ".join(new[:3]), "; ".join(new[:10])
        return UNKNOWN_STATUS.outbox(self._new_id(), now, subject=self._seen.provider, newest=newest, words=words)
