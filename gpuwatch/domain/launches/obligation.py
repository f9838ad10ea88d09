"""What must be ended, as the keeper reads it from its own file: JSON lines, of which the newest of a launch counts.

The file works without the database. A line is the whole obligation as it is then, so a line that is lost, repeated or
torn costs no other. Pure: `storage.obligation_file` reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.launch import Launch, LaunchState

VERSION = 1  # of a line
_NEWLINE = b"\n"


class Obligation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An instance that must end, or an order that may have made one.

    Attributes:
        v: version of the line.
        account: the account at the provider; None: not known.
        key_hash: of the key it was ordered with, salted with the launch's id; None: not known. The same key is the same
            account, without asking anybody.
        install: the installation that rented it; None: not known.
        instance_id: None: not known yet; its label finds it.
        ends_at: when it must be over; None: nothing ends it but its owner.
        is_ending: the daemon has begun to end it.
        hook_s: how long `before_stop` may take before it is destroyed; 0 without that hook.
        revision: of the launch's row; an older one never replaces a newer one.
        is_over: it is closed.
        over_at: when it was closed; None: it is open, or no instance of it was ever known.
        by_keeper: the keeper closed it, because the provider said that it is gone; else the daemon did.
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
    is_ending: bool = False
    hook_s: float = 0.0
    revision: int = 0
    is_over: bool = False
    over_at: datetime | None = None
    by_keeper: bool = False


class ReadObligations(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says.

    Attributes:
        open: by launch id, what is not over.
        closed: by launch id, what is over: a line that comes late does not open it again, and one that does open it
            may not know all that this one knew.
        foreign: lines of a newer gpuwatch that this one cannot read: kept as they are. A torn line is not: its order
            was not sent, or a later line says the same.
    """

    open: Mapping[str, Obligation] = {}
    closed: Mapping[str, Obligation] = {}
    foreign: tuple[bytes, ...] = ()

    def least_revision(self, launch_id: str) -> int:
        """From which on a line counts; after its end, only a later change opens it again."""
        if (known := self.open.get(launch_id)) is not None:
            return known.revision
        return self.closed[launch_id].revision + 1 if launch_id in self.closed else 0

    def newest(self, launch_id: str) -> Obligation | None:
        """What the file says of a launch, open or closed; None: nothing."""
        return self.open.get(launch_id) or self.closed.get(launch_id)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Obligation)


def encode_line(obligation: Obligation) -> bytes:
    """One line, its end included."""
    return _encoder.encode(obligation) + _NEWLINE


def decode_line(line: bytes) -> Obligation | None:
    """None: it is torn, or a newer gpuwatch wrote it in a way that this one cannot read."""
    try:
        found = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    times = (found.ordered_at, found.ends_at, found.over_at)
    return found if all(at is None or at.tzinfo for at in times) else None


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def read_lines(lines: Iterable[bytes], before: ReadObligations = ReadObligations()) -> ReadObligations:  # noqa: B008 frozen
    """What these lines say, after those that were read before.

    A newer version of a line is read as far as its fields are known: what a later gpuwatch adds hides no obligation.
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
    """What was closed since then, and had an instance: it may be there after all."""
    return [one for one in read.closed.values() if one.over_at is not None and one.over_at >= since]


def compacted(read: ReadObligations, since: datetime) -> bytes:
    """The file without what was over before that, or never had an instance; what cannot be read stays."""
    foreign = b"".join(line + _NEWLINE for line in read.foreign)
    return foreign + b"".join(encode_line(one) for one in (*read.open.values(), *watched_since(read, since)))


def reopened_obligation(closed: Obligation) -> Obligation:
    """The obligation again, after it was closed: its instance is there."""
    return msgspec.structs.replace(closed, is_over=False, over_at=None, by_keeper=False, revision=closed.revision + 1)


def obligation_of(
    launch: Launch, before: Obligation | None, now: datetime, hook_s: float = 0.0, key_hash: str | None = None
) -> Obligation:
    """What must be ended of a launch, at its own end; see `earliest_end` for what the file knows better.

    Args:
        before: what the file said, open or closed; None: nothing yet.
        hook_s: how long `before_stop` may take, where the watch is known; else what the file said stays.
        key_hash: of the key that orders it; else what the file said stays.
    """
    is_ending = launch.state is LaunchState.STOPPING
    same_key = before is not None and before.provider == launch.provider  # it may have gone on at another provider
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
        is_ending=is_ending,
        hook_s=hook_s,
        revision=launch.version,
        is_over=launch.is_over,
        over_at=now if launch.is_over and launch.instance_id else None,
    )


def latest_end(launch: Launch) -> datetime | None:
    """When `max_runtime` is over, or the deadline that its instance was given, whichever comes first."""
    if launch.max_runtime_s is None or launch.deadline is None:
        return None
    if launch.running_at is None:
        return launch.deadline
    return min(launch.deadline, launch.running_at + timedelta(seconds=launch.max_runtime_s))


def earliest_end(before: Obligation | None, after: Obligation) -> Obligation:
    """The obligation with the end that the file knew, if that is earlier: only an order or `extend` gives a later one.

    A database restored from a backup forgets when an instance began to run, or that its end was wanted.
    """
    if before is None or before.ends_at is None or after.ordered_at > before.ordered_at:
        return after
    if after.ends_at is not None and after.ends_at <= before.ends_at:
        return after
    return msgspec.structs.replace(after, ends_at=before.ends_at)


def _end_under_way(before: Obligation | None) -> datetime | None:
    return before.ends_at if before is not None and before.is_ending else None


def changes(before: Obligation | None, after: Obligation) -> bool:
    """Whether a line is worth writing: a price or a revision alone is not, nor what is over and was never open."""
    if before is None:
        return not after.is_over
    same = msgspec.structs.replace(
        after, revision=before.revision, price_microusd_hour=before.price_microusd_hour, gpu=before.gpu
    )
    return same != before and after.revision >= before.revision
