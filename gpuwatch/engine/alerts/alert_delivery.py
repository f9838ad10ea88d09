"""Deliver alerts from the outbox to the owner: one thread per channel, so that no channel waits for another."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.domain.alerts.alert import OutboxAlert, alert_for_reading
from gpuwatch.domain.alerts.service_texts import LATE, NEW_ADDRESS
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.engine.alerts.alert_routing import AlertRouting, OutgoingMessage, messages
from gpuwatch.engine.alerts.channel_failures import (
    FAILOVER_AFTER,
    ChannelFailover,
    ChannelReports,
)
from gpuwatch.engine.alerts.page_links import with_page_links
from gpuwatch.engine.setup.failpoint import failpoint
from gpuwatch.errors import DeliverLater, DeliveryRefused, StoreError
from gpuwatch.language import ENGLISH, use_language
from gpuwatch.ports import (
    Alert,
    AlertKind,
    BatchingChannel,
    Channel,
    DueDelivery,
    ManyRecipients,
    MovableChannel,
    OneByOneChannel,
    SilentChannel,
)
from gpuwatch.redaction import redact

if TYPE_CHECKING:
    from gpuwatch.storage.alerts.outbox import Outbox

log = logging.getLogger(__name__)

BACKOFF_S = 5.0  # doubled after each attempt …
LONGEST_BACKOFF_S = 900.0  # … up to this limit
LONGEST_WAIT_S = 86_400.0  # longest wait that a channel may request
PROBE_AFTER_S = 1_200.0  # a channel that rejects alerts is tried three times an hour, so that no login is locked
HANGS_AFTER = timedelta(minutes=1)
DELIVERY_LEASE_S = 60.0
_SENDING_S = 25.0  # then the rest of a batch is released, so that one more send ends within the lease
_BATCH = 100
_MAX_BLOCKING_ATTEMPTS = 3  # after this many attempts a message no longer delays those behind it
_MOST_FAILURES = 2  # per batch


class AlertDelivery:
    """Sends due alerts.

    Args:
        channels: the configured channels by name; they also take over alerts that the outbox holds for other channels.
        routing: selects the channels of each alert; None: every channel gets every alert at once.
        log_alert: writes an alert to the log, once for each alert unless the process crashes.
        public_url: address of the web page, which the messages link to; empty: they do not.
        language: of the messages.
        patience_s: how long one call waits for its channels; a slow channel continues in the background.
    """

    def __init__(  # noqa: PLR0913 the ports, and a test's clock
        self,
        outbox: Outbox,
        channels: Mapping[str, Channel],
        *,
        routing: AlertRouting | None = None,
        log_alert: Callable[[Alert], None] = lambda alert: None,
        public_url: str = "",
        language: str = ENGLISH,
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        patience_s: float = 0.5,
    ) -> None:
        self._outbox = outbox
        self._channels = dict(channels)
        self._routing = routing or AlertRouting(channels=tuple(channels))
        self._log_alert = log_alert
        self._public_url = public_url
        self._language = language
        self._logged: set[str] = set()  # logged but not routed yet, because the outbox failed
        self._monotonic = monotonic
        self._jitter = jitter
        self._patience_s = patience_s
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._delivered = 0
        self._started: dict[str, tuple[datetime, float]] = {}  # by channel: both clocks at the start of its batch
        self._reports = ChannelReports(tuple(self._channels), self._enqueue)
        self._failover = ChannelFailover(outbox, self._routing, self._reports)
        self._moved: set[tuple[str, str]] = set()  # reported: old and new address
        self._has_taken_over = False
        for channel in self._channels.values():
            if isinstance(channel, MovableChannel):
                channel.new_address = outbox.new_address(channel.name, channel.address)

    def _take_over(self, now: datetime) -> None:
        """Take over alerts for channels that are gone, except what an earlier generation is still sending there.

        Raises:
            StoreError: the next call tries again.
        """
        handed_over, being_sent = self._outbox.hand_over(tuple(self._channels), now)
        self._has_taken_over = not being_sent
        if handed_over:
            log.warning(
                "%d alerts for channels that are no longer configured were handed over to the others", handed_over
            )

    def send_due(self, now: datetime) -> int:
        """Route new alerts, expire late ones, start sending due ones; return the deliveries since the last call.

        Raises:
            StoreError: the outbox cannot be read.
        """
        if self._outbox.has_work():
            if not self._has_taken_over:
                self._take_over(now)
            self.route_new(now)
            self._expire(now)
        self._failover.run_if_due(now)
        clock, is_quiet, has_work = self._clock_from(now), self._routing.is_quiet(now), self._outbox.has_work()
        for name, channel in self._channels.items():
            if self._stopping.is_set() or self._is_busy(name):
                self._report_hanging(name, now)
                continue
            deliveries = (
                self._outbox.lease(now, _BATCH, DELIVERY_LEASE_S, (name,), only_critical=is_quiet) if has_work else ()
            )
            if deliveries:
                failpoint("alert.leased")
                self._started[name] = now, self._monotonic()
                self._start(name, channel, deliveries, clock)
        self._wait(self._patience_s)
        with self._lock:
            delivered, self._delivered = self._delivered, 0
        return delivered

    def close(self, timeout_s: float = 5.0) -> bool:
        """Stop sending. Returns False if a channel did not return in time.

        It keeps its lease: it records the result, or its lease expires by itself. Call again to wait on.
        """
        self._stopping.set()
        self._wait(timeout_s)
        return not any(map(self._is_busy, self._channels))

    def route_new(self, now: datetime) -> None:
        """Log new alerts, then route them to their channels. A crash between the two logs them again.

        Raises:
            StoreError: routing failed; the next call retries it without logging again.
        """
        while new := self._outbox.unrouted():
            for one in new:
                if one.alert.alert_id not in self._logged:
                    self._log_alert(one.alert)
                    self._logged.add(one.alert.alert_id)
            self._outbox.route({one.alert.alert_id: self._routing.channels_for(one) for one in new}, now)
            self._logged.clear()

    def _expire(self, now: datetime) -> None:
        expired, is_quiet = self._outbox.expire(now), self._routing.is_quiet(now)
        if expired:
            level = logging.INFO if is_quiet else logging.WARNING
            log.log(level, "%d deliveries expired before their channel accepted them", expired)
        if is_quiet:
            return  # the next message mentions the expired ones
        for name, (count, newest_ms) in self._outbox.unreported_failures().items():
            if name in self._channels:
                alerts = count_text(count, "alert")
                self._enqueue(LATE.outbox(None, now, subject=name, alerts=alerts, newest_ms=newest_ms), (name,))

    def _is_busy(self, name: str) -> bool:
        thread = self._threads.get(name)
        return thread is not None and thread.is_alive()

    def _report_hanging(self, name: str, now: datetime) -> None:
        since, started_s = self._started.get(name, (now, math.inf))
        if self._monotonic() - started_s >= HANGS_AFTER.total_seconds():
            del self._started[name]  # reported once
            self._reports.silent(name, since, "no answer for a minute", now)

    def _start(
        self, name: str, channel: Channel, deliveries: Sequence[DueDelivery], clock: Callable[[], datetime]
    ) -> None:
        # daemon threads: a channel that hangs must not delay the exit of the program
        thread = threading.Thread(
            target=self._work, args=(channel, deliveries, clock), name=f"deliver-{name}", daemon=True
        )
        self._threads[name] = thread
        thread.start()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in list(self._threads.values()):
            thread.join(max(until - time.monotonic(), 0.0))

    def _clock_from(self, now: datetime) -> Callable[[], datetime]:
        started_s = self._monotonic()
        return lambda: now + timedelta(seconds=self._monotonic() - started_s)

    def _work(self, channel: Channel, deliveries: Sequence[DueDelivery], clock: Callable[[], datetime]) -> None:
        started_at, failures = clock(), 0
        with use_language(self._language):
            waiting = list(messages(deliveries, one_by_one=isinstance(channel, OneByOneChannel)))
        waiting.sort(key=_no_longer_blocks)  # a failure ends the batch: one that always fails must not stay first
        try:
            batch = channel.batch() if isinstance(channel, BatchingChannel) else nullcontext()
            with use_language(self._language), batch:
                while waiting and failures < _MOST_FAILURES and not self._is_over(started_at, clock):
                    message = waiting.pop(0)
                    failures += self._send(channel, message, clock)
            for message in waiting:
                for due in message.deliveries:
                    self._outbox.release(due)
        except StoreError as error:
            log.error("cannot update the outbox; alerts may be sent twice: %s", redact(str(error)))  # noqa: TRY400

    def _is_over(self, started_at: datetime, clock: Callable[[], datetime]) -> bool:
        return self._stopping.is_set() or clock() - started_at > timedelta(seconds=_SENDING_S)

    def _send(self, channel: Channel, message: OutgoingMessage, clock: Callable[[], datetime]) -> int:
        """Send it and store the result; return how many failures this adds to the batch."""
        alert = with_page_links(message.alert, self._public_url)
        if not isinstance(channel, OneByOneChannel):  # that is a program
            alert = alert_for_reading(alert)
        try:
            if self._routing.is_below(channel.name, alert) and isinstance(channel, SilentChannel):
                channel.send_silently(alert, message.taken)
            elif message.taken and isinstance(channel, ManyRecipients):
                channel.send_remaining(alert, message.taken)
            else:
                channel.send(alert)
        except DeliverLater as error:
            return self._put_off(channel.name, message, error, clock())
        except DeliveryRefused as error:
            return self._refused(channel.name, message, error, clock())
        except Exception as error:  # whatever a channel raises, the alert is kept
            fault = DeliverLater(f"{channel.name}: {type(error).__name__}: {redact(str(error))[:200]}")
            return self._put_off(channel.name, message, fault, clock())
        failpoint("alert.sent")
        self._sent(channel, message, clock())
        failpoint("alert.marked")
        return 0

    def _sent(self, channel: Channel, message: OutgoingMessage, now: datetime) -> None:
        for due in message.deliveries:
            self._outbox.mark_sent(due, now)
        with self._lock:
            self._delivered += len(message.deliveries)
        self._reports.accepted(channel.name)
        if isinstance(channel, MovableChannel) and channel.new_address is not None:
            self._report_new_address(channel, channel.new_address, now)

    def _report_new_address(self, channel: MovableChannel, new: str, now: datetime) -> None:
        if (channel.address, new) in self._moved:
            return
        self._moved.add((channel.address, new))
        self._outbox.save_new_address(channel.name, channel.address, new, now)
        self._enqueue(
            NEW_ADDRESS.outbox(
                None, now, subject=channel.name, option=channel.address_option, old=channel.address, new=new
            ),
            tuple(self._channels),
        )

    def _put_off(self, name: str, message: OutgoingMessage, error: DeliverLater, now: datetime) -> int:
        wait_s = self._wait_s(error, message.deliveries[0].attempts)
        for due in message.deliveries:
            self._outbox.postpone(due, now + timedelta(seconds=wait_s), str(error), error.taken or due.taken)
        self._reports.failed(name, str(error))
        if error.refused:
            self._reports.refused_in_part(name, error.refused, now)
        if wait_s > FAILOVER_AFTER.total_seconds():
            self._share(name, message)
        if error.taken:
            return 0  # one recipient does not delay the messages behind it
        # after some attempts, the messages behind it show whether the message or the channel fails
        return 1 if _no_longer_blocks(message) else _MOST_FAILURES

    def _wait_s(self, error: DeliverLater, attempts: int) -> float:
        if error.retry_after_s is not None and math.isfinite(error.retry_after_s):
            return min(max(error.retry_after_s, 1.0), LONGEST_WAIT_S)
        if error.waits_s:
            wait_s = error.waits_s[min(attempts, len(error.waits_s) - 1)]
        else:
            wait_s = min(BACKOFF_S * 2 ** min(attempts, 20), LONGEST_BACKOFF_S)
        return wait_s * (1 + 0.2 * self._jitter())

    def _refused(self, name: str, message: OutgoingMessage, error: DeliveryRefused, now: datetime) -> int:
        if error.taken:  # some of several recipients were rejected; the others received it
            self._sent_in_part(name, message, error, now)
            return 0
        for due in message.deliveries:
            self._outbox.mark_refused(due, str(error), now + timedelta(seconds=PROBE_AFTER_S))
        self._share(name, message)
        self._reports.refused(name, str(error), now)
        return _MOST_FAILURES

    def _sent_in_part(self, name: str, message: OutgoingMessage, error: DeliveryRefused, now: datetime) -> None:
        for due in message.deliveries:
            self._outbox.mark_sent(due, now, str(error))
        with self._lock:
            self._delivered += len(message.deliveries)
        self._reports.refused_in_part(name, error.refused or str(error), now)

    def _share(self, name: str, message: OutgoingMessage) -> None:
        """Send to the other channels what this channel does not accept."""
        for due in message.deliveries:
            if due.alert.kind is not AlertKind.CHANNEL:  # the other channels have those already
                self._outbox.add_deliveries(due.alert.alert_id, self._reports.all_but(name))

    def _enqueue(self, alert: OutboxAlert, channels: Sequence[str]) -> None:
        self._outbox.enqueue(msgspec.structs.replace(alert, channels=tuple(channels)))


def _no_longer_blocks(message: OutgoingMessage) -> bool:
    return message.deliveries[0].attempts + 1 >= _MAX_BLOCKING_ATTEMPTS
