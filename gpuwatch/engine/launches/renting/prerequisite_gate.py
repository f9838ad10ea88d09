"""Blocks renting at a provider while a prerequisite of every rent is missing; reports that, and its fix, once.

The verdict is stored as a hold of the provider, so that a restart repeats no report. It covers the watches of the
settings. For jobs, which accept other offers and bring their own key pair, only prerequisites of every rent count.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.alerts.launch_texts import PREREQUISITES_MET, PREREQUISITES_MISSING
from gpuwatch.errors import GpuwatchError, StoreError
from gpuwatch.ports import OutboxAlert
from gpuwatch.ports.market import Hold, HoldStore
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName, is_blocked

log = logging.getLogger(__name__)

RENTING, RENTING_JOBS = "renting", "renting jobs"  # kinds of its holds
CHECK_EVERY_S = 3600.0
RECHECK_S = 60.0  # while something is missing or unknown: the owner fixes it and wants to see the result
_KEPT_FOR = timedelta(days=365)
_REASON_LENGTH = 400

Probe = Callable[[], tuple[Sequence[Prerequisite], Sequence[str]]]  # → findings, the ids of the examined offers


class PrerequisiteGate:
    """Checks the prerequisites of one provider.

    Args:
        probe: checks the prerequisites for some offers; rents nothing.
        enqueue: puts an alert into the outbox; may raise StoreError.
        pace: factor by which waiting times are shortened.
    """

    def __init__(
        self,
        provider: str,
        probe: Probe,
        holds: HoldStore,
        enqueue: Callable[[OutboxAlert], object],
        new_id: Callable[[], str],
        pace: float = 1.0,
    ) -> None:
        self._provider = provider
        self._probe = probe
        self._holds = holds
        self._enqueue = enqueue
        self._new_id = new_id
        self._pace = pace
        self._next_at: datetime | None = None
        self._reason = self._job_reason = "its prerequisites are being checked"
        self.has_checked = False

    def why_not(self, *, is_job: bool = False) -> str | None:
        """Return why nothing can be rented there, in one line; None: nothing is known to be missing."""
        reason = self._job_reason if is_job else self._reason
        return f"{self._provider}: {reason}" if reason else None

    def run_if_due(self, now: datetime) -> bool:
        """Check again if it is time; return whether that happened."""
        if self._next_at is not None and now < self._next_at <= now + timedelta(seconds=CHECK_EVERY_S):
            return False
        try:
            found, offer_ids = self._probe()
        except GpuwatchError as error:  # an unknown prerequisite blocks nothing: the order itself would fail
            log.info("prerequisites: cannot tell: %s", error, extra={"provider": self._provider})
            found, offer_ids = (), ()
        except Exception as error:  # a plugin's probe may raise anything, and must not block its provider forever
            log.warning(
                "prerequisites: the probe failed (%s)", type(error).__name__, extra={"provider": self._provider}
            )
            found, offer_ids = (), ()
        blocked = is_blocked(found, offer_ids)
        settled = bool(found) and all(one.met for one in found)
        self._next_at = now + timedelta(seconds=(CHECK_EVERY_S if settled else RECHECK_S) / self._pace)
        missing = [one for one in found if one.met is False and one.is_blocking]
        if found or not self.has_checked:
            self._take(missing if blocked else [], known=blocked or self._is_answered(found, now), now=now)
        self.has_checked = True
        return True

    def _is_answered(self, found: Sequence[Prerequisite], now: datetime) -> bool:
        """Whether the missing prerequisites are now known to be met: a missing answer is not a fix."""
        held = self._held(now)
        return bool(found) and (
            held is None
            or not any(prerequisite.met is None and _title(prerequisite) in held.reason for prerequisite in found)
        )

    def _take(self, missing: Sequence[Prerequisite], *, known: bool, now: datetime) -> None:
        """Store the verdict, and report a change. Without an answer the earlier verdict stays.

        Of several processes that find a change after the same stored verdict, one reports it.
        """
        stored = next((one for one in self._holds.load(self._provider) if one.kind == RENTING), None)
        held = None if stored is None or stored.until <= now else stored
        since_s = 0 if stored is None else int(stored.set_at.timestamp())
        if not known:
            self._reason, self._job_reason = (
                _reason_of(self._holds, self._provider, kind, now) for kind in (RENTING, RENTING_JOBS)
            )
            return
        reason = summary(missing)[:_REASON_LENGTH]
        self._reason = reason
        of_every_rent = [
            prerequisite
            for prerequisite in missing
            if not prerequisite.offer_ids and prerequisite.name is not PrerequisiteName.KEY_PAIR
        ]
        self._job_reason = summary(of_every_rent)[:_REASON_LENGTH]
        try:
            if reason and held is None:
                self._enqueue(self._missing_alert(missing, since_s, now))
                log.warning("gpuwatch does not rent there: %s", reason, extra={"provider": self._provider})
            elif not reason and held is not None:
                self._enqueue(
                    PREREQUISITES_MET.outbox(
                        self._new_id(), now, subject=self._provider, missing=held.reason, since_s=since_s
                    )
                )
                log.info("its prerequisites are met again", extra={"provider": self._provider})
        except StoreError as error:  # the next check reports it
            log.warning("cannot store the alert about prerequisites: %s", error)
            return
        if reason or held is not None:
            for kind, why in ((RENTING, reason), (RENTING_JOBS, self._job_reason)):
                until = now + _KEPT_FOR if why else now
                self._holds.save(Hold(provider=self._provider, kind=kind, set_at=now, until=until, reason=why))

    def _missing_alert(self, missing: Sequence[Prerequisite], since_s: int, now: datetime) -> OutboxAlert:
        return PREREQUISITES_MISSING.outbox(
            self._new_id(),
            now,
            subject=self._provider,
            since_s=since_s,
            missing=f"{len(missing)} prerequisite{'s' * (len(missing) > 1)}",
            facts=(
                ("Provider", self._provider),
                *((f"{one.name.value} {one.place}".strip(), one.text) for one in missing),
            ),
            can_do=(
                *dict.fromkeys(one.mend for one in missing if one.mend),
                f"See all: gpuwatch doctor --provider {self._provider}",
            ),
        )

    def _held(self, now: datetime) -> Hold | None:
        return _hold_of(self._holds, self._provider, RENTING, now)


def why_held(holds: HoldStore, provider: str, now: datetime, *, is_job: bool = False) -> str:
    """Return what a daemon last found missing there, in one line; empty: nothing."""
    reason = _reason_of(holds, provider, RENTING_JOBS if is_job else RENTING, now)
    return f"{provider}: {reason}" if reason else ""


def _hold_of(holds: HoldStore, provider: str, kind: str, now: datetime) -> Hold | None:
    return next((one for one in holds.load(provider) if one.kind == kind and one.until > now), None)


def _reason_of(holds: HoldStore, provider: str, kind: str, now: datetime) -> str:
    held = _hold_of(holds, provider, kind, now)
    return "" if held is None else held.reason


def summary(missing: Sequence[Prerequisite]) -> str:
    """Return what is missing, each with its fix, in one line; empty: nothing."""
    lines = (f"{_title(one)} {one.text}" + (f" → {one.mend}" if one.mend else "") for one in missing)
    return "; ".join(dict.fromkeys(lines))


def _title(one: Prerequisite) -> str:
    return f"{one.name.value} ({one.place}):" if one.place else f"{one.name.value}:"
