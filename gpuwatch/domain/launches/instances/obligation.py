"""Instances that must be ended, read by the keeper from its own file: JSON lines; the newest line per launch counts.

The file works without the database. Each line is the complete obligation at that time, so a line that is lost,
repeated or torn does not affect the others. Pure: `storage.launches.obligation_file` reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.launch import Launch, LaunchState

VERSION = 1  # version of the line format
_NEWLINE = b"\n"


class Obligation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An instance that must end, or an order that may have created one.

    Attributes:
        v: version of the line format.
        account: the account at the provider; None: not known.
        key_hash: hash of the key that sent the order, salted with the launch id; None: unknown. The same key means the
            same account, without a query.
        install: the installation that rented it; None: unknown.
        instance_id: None: not known yet; it is found by its label.
        ends_at: when it must have ended; None: only its owner ends it.
        runtime_s: its `max_runtime` with all extensions; None: none, or an older gpuwatch wrote the line.
        is_ending: the daemon has begun to end it.
        hook_s: how long `before_stop` may take before it is destroyed; 0 without that hook.
        keep_s: at `ends_at` it is stopped, and its disk is kept for this many seconds; 0: it is destroyed then.
        revision: version of the launch's row; an older one never replaces a newer one.
        is_over: it is closed.
        over_at: when it was closed; None: it is open, or it never had a known instance.
        by_keeper: the keeper closed it, because the provider reported it as gone; otherwise the daemon did.
        is_end_reported: the owner was alerted that the keeper ended it.
        failing_reported_at: when the owner was last alerted that the keeper cannot end it.
    """

    v: int = VERSION
    launch_id: str
    watch: str
    provider: str
    account: str | None = None
    key_hash: str | None = None
    install: str | None = None
    label: str
    instance_id: str | None = None
    gpu: str
    gpu_count: int
    price_microusd_hour: int
    ordered_at: datetime
    ends_at: datetime | None = None
    runtime_s: float | None = None
    is_ending: bool = False
    hook_s: float = 0.0
    keep_s: float = 0.0
    revision: int = 0
    is_over: bool = False
    over_at: datetime | None = None
    by_keeper: bool = False
    is_end_reported: bool = False
    failing_reported_at: datetime | None = None


class ReadObligations(msgspec.Struct, frozen=True, kw_only=True):
    """The content of an obligation file.

    Attributes:
        open: open obligations by launch id.
        closed: closed obligations by launch id. A late line does not open one again; a line that does reopen one may
            lack facts of the closed one.
        foreign: unreadable lines of a newer gpuwatch, which are kept. Torn lines are not kept: their order was not
            sent, or a later line repeats them.
    """

    open: Mapping[str, Obligation] = {}
    closed: Mapping[str, Obligation] = {}
    foreign: tuple[bytes, ...] = ()

    def least_revision(self, launch_id: str) -> int:
        """The least revision that counts for a launch; once it is closed, only a later change reopens it."""
        if (known := self.open.get(launch_id)) is not None:
            return known.revision
        return self.closed[launch_id].revision + 1 if launch_id in self.closed else 0

    def newest(self, launch_id: str) -> Obligation | None:
        """The obligation of a launch, open or closed; None: there is none."""
        return self.open.get(launch_id) or self.closed.get(launch_id)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Obligation)


def encode_line(obligation: Obligation) -> bytes:
    """Encode one line, with its line end."""
    return _encoder.encode(obligation) + _NEWLINE


def decode_line(line: bytes) -> Obligation | None:
    """Decode one line; None: it is torn, or a newer gpuwatch wrote it in an unreadable form."""
    try:
        found = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    times = (found.ordered_at, found.ends_at, found.over_at, found.failing_reported_at)
    return found if all(at is None or at.tzinfo for at in times) else None


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def read_obligation_lines(lines: Iterable[bytes], before: ReadObligations = ReadObligations()) -> ReadObligations:  # noqa: B008 frozen
    """Read these lines, after those read before.

    Unknown fields of a newer version are ignored, so that they do not hide an obligation.
    """
    opened, closed, foreign = dict(before.open), dict(before.closed), list(before.foreign)
    state = ReadObligations(open=opened, closed=closed)
    for line in filter(bytes.strip, lines):
        found = decode_line(line)
        if found is None:
            foreign += [line.rstrip(_NEWLINE)] if _is_json(line) else []
        elif found.revision < state.least_revision(found.launch_id):
            continue
        elif found.is_over:
            opened.pop(found.launch_id, None)
            closed[found.launch_id] = found
        else:
            opened[found.launch_id] = found
            closed.pop(found.launch_id, None)
    return ReadObligations(open=opened, closed=closed, foreign=tuple(foreign))


def watched_since(read: ReadObligations, since: datetime) -> list[Obligation]:
    """Obligations with an instance that were closed since then: the instance may still exist."""
    return [one for one in read.closed.values() if one.over_at is not None and one.over_at >= since]


def compacted(read: ReadObligations, since: datetime) -> bytes:
    """The file without obligations that were closed earlier or never had an instance; unreadable lines are kept."""
    foreign = b"".join(line + _NEWLINE for line in read.foreign)
    return foreign + b"".join(encode_line(one) for one in (*read.open.values(), *watched_since(read, since)))


def reopened_obligation(closed: Obligation) -> Obligation:
    """Reopen a closed obligation, because its instance exists."""
    return msgspec.structs.replace(
        closed, is_over=False, over_at=None, by_keeper=False, is_end_reported=False, revision=closed.revision + 1
    )


def obligation_of(
    launch: Launch,
    before: Obligation | None,
    now: datetime,
    hook_s: float = 0.0,
    key_hash: str | None = None,
    keep_s: float = 0.0,
) -> Obligation:
    """The obligation that follows from a launch, with the launch's own end; `earliest_end` adds what the file knows.

    Args:
        before: the obligation in the file, open or closed; None: none yet.
        hook_s: how long `before_stop` may take, if the watch is known; otherwise the value of the file is kept.
        key_hash: hash of the ordering key; None: the value of the file is kept.
        keep_s: how long its disk is kept after the end of its run.
    """
    is_ending = launch.state is LaunchState.STOPPING
    same_key = before is not None and before.provider == launch.provider  # it may have continued at another provider
    hook_s = hook_s or (before.hook_s if before else 0.0)
    ends_at = latest_end(launch)
    if is_ending:
        wanted = now + timedelta(seconds=hook_s if launch.running_at else 0.0)
        ends_at = min(end for end in (ends_at, wanted, _end_under_way(before)) if end is not None)
    return Obligation(
        launch_id=launch.launch_id,
        watch=launch.watch,
        provider=launch.provider,
        account=launch.account_id,
        key_hash=key_hash or (before.key_hash if before and same_key else None),
        install=launch.install_id,
        label=launch.label,
        instance_id=launch.instance_id,
        gpu=launch.gpu,
        gpu_count=launch.gpu_count,
        price_microusd_hour=launch.price_microusd_hour,
        ordered_at=launch.requested_at or launch.intended_at,
        ends_at=ends_at,
        runtime_s=launch.max_runtime_s,
        is_ending=is_ending,
        hook_s=hook_s,
        keep_s=keep_s,
        revision=launch.version,
        is_over=launch.is_over,
        over_at=now if launch.is_over and launch.instance_id else None,
        is_end_reported=before is not None and before.is_end_reported and not before.is_over,
        failing_reported_at=None if before is None else before.failing_reported_at,
    )


def latest_end(launch: Launch) -> datetime | None:
    """The end of `max_runtime`, or the deadline that its instance was given, whichever comes first."""
    if launch.max_runtime_s is None or launch.deadline is None:
        return None
    if launch.running_at is None:
        return launch.deadline
    return min(launch.deadline, launch.running_at + timedelta(seconds=launch.max_runtime_s))


def earliest_end(before: Obligation | None, after: Obligation) -> Obligation:
    """The obligation with the end recorded in the file, if that is earlier: only an order or `extend` moves it back.

    A database restored from a backup does not know when an instance began to run, or that its end was requested.
    """
    if before is None or before.ends_at is None or after.ordered_at > before.ordered_at:
        return after
    if after.ends_at is not None and after.ends_at <= before.ends_at:
        return after
    return msgspec.structs.replace(after, ends_at=before.ends_at)


def is_extended(before: Obligation | None, runtime_s: float | None) -> bool:
    """Whether a row with this runtime was extended since the line: only `extend` lengthens it, on whichever host."""
    if before is None or before.runtime_s is None or runtime_s is None:
        return False
    return runtime_s > before.runtime_s


def as_extended(before: Obligation | None, after: Obligation) -> Obligation:
    """The obligation with its own, later end; it counts even if a restored database numbers its rows lower."""
    revision = after.revision if before is None or before.is_over else max(after.revision, before.revision)
    return msgspec.structs.replace(after, revision=revision)


def moved_by_extension(before: Obligation, runtime_s: float, revision: int) -> Obligation:
    """The obligation with the end that a longer runtime gives it."""
    assert before.ends_at is not None
    assert before.runtime_s is not None
    later = before.ends_at + timedelta(seconds=runtime_s - before.runtime_s)
    moved = msgspec.structs.replace(before, ends_at=later, runtime_s=runtime_s, revision=revision)
    return as_extended(before, moved)


def disk_kept(before: Obligation) -> Obligation:
    """The obligation of an instance that was stopped at its end: its disk is destroyed once it was kept long enough."""
    assert before.runtime_s is not None
    later = moved_by_extension(before, before.runtime_s + before.keep_s, before.revision)
    return msgspec.structs.replace(later, keep_s=0.0)


def _end_under_way(before: Obligation | None) -> datetime | None:
    return before.ends_at if before is not None and before.is_ending else None


def changes(before: Obligation | None, after: Obligation) -> bool:
    """Whether to write a line: not for a price or a revision alone, and not for a closed one that was never open."""
    if before is None:
        return not after.is_over
    same = msgspec.structs.replace(
        after, revision=before.revision, price_microusd_hour=before.price_microusd_hour, gpu=before.gpu
    )
    return same != before and after.revision >= before.revision
