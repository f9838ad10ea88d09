"""The calendar of what is to come, as iCalendar (RFC 5545): when machines end, watches may act, jobs run or are due."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote
from zoneinfo import ZoneInfo

import msgspec

from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.market.offer import clean, hardware_text
from gpuwatch.domain.watches.windows import parse_window
from gpuwatch.language import translate as _
from gpuwatch.settings import Settings
from gpuwatch.storage.jobs.job_repository import SqlJobRepository
from gpuwatch.storage.jobs.series_repository import SqlSeriesRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.database import Database

WINDOW_DAYS = 14  # a reader asks again long before
_LINE_BYTES = 75  # source: RFC 5545 §3.1
_ESCAPED = str.maketrans({"\\": "\\\\", ";": "\\;", ",": "\\,"})


class CalendarEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One event. `ends_at` None: a moment. `path`: of its page."""

    uid: str
    summary: str
    starts_at: datetime
    ends_at: datetime | None = None
    path: str = ""


def calendar_entries(settings: Settings, now: datetime) -> list[CalendarEntry]:
    """What is to come, soonest first. Raises StoreError."""
    with open_store_read_only(settings) as store:
        entries = [*_launch_ends(store, now), *_job_deadlines(store, now), *_next_runs(store)]
    entries += _watch_windows(settings, now)
    return sorted(entries, key=lambda entry: (entry.starts_at, entry.uid))


def calendar_file(settings: Settings, now: datetime) -> bytes:
    """The file. Raises StoreError."""
    return calendar_text(calendar_entries(settings, now), settings.web.public_url, now)


def calendar_text(entries: Iterable[CalendarEntry], public_url: str, now: datetime) -> bytes:
    """The file of these events, with lines of at most 75 bytes."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//gpuwatch//gpuwatch//EN", "X-WR-CALNAME:gpuwatch"]
    for entry in entries:
        lines += _event_lines(entry, public_url, now)
    return b"".join(map(_folded, [*lines, "END:VCALENDAR"]))


def _launch_ends(store: Database, now: datetime) -> Iterator[CalendarEntry]:
    for launch in SqlLaunchRepository(store).alive():
        began = launch.running_at or launch.requested_at or launch.intended_at
        if launch.dry_run or launch.max_runtime_s is None:
            continue
        what = hardware_text(launch.gpu, launch.gpu_count)
        yield CalendarEntry(
            uid=f"launch-{launch.launch_id}",
            summary=_("{machine} ends ({watch})").format(machine=what, watch=launch.watch),
            starts_at=max(began + timedelta(seconds=launch.max_runtime_s), now.replace(microsecond=0)),
            path=f"/launches/{quote(launch.launch_id, safe='')}",
        )


def _job_deadlines(store: Database, now: datetime) -> Iterator[CalendarEntry]:
    for job in SqlJobRepository(store).open_with_deadline():
        if job.deadline is not None:
            yield CalendarEntry(
                uid=f"job-{job.job_id}",
                summary=_("Job {job} is due").format(job=job.name),
                starts_at=job.deadline,
                path=f"/jobs/{quote(job.job_id, safe='')}",
            )


def _next_runs(store: Database) -> Iterator[CalendarEntry]:
    for series in SqlSeriesRepository(store).every():
        yield CalendarEntry(
            uid=f"series-{series.name}-{series.next_at:%Y%m%dT%H%M}",
            summary=_("Job {job} runs").format(job=series.name),
            starts_at=series.next_at,
            path="/jobs",
        )


def _watch_windows(settings: Settings, now: datetime) -> Iterator[CalendarEntry]:
    """The windows of the next days; each is an event of its own, so that a change of the clock moves none."""
    zone = ZoneInfo(settings.timezone)
    midnight = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    for watch in settings.watches:
        for number, window in enumerate(map(parse_window, watch.active)):
            minutes = (window.end_minute - window.start_minute) % (24 * 60) or 24 * 60
            for day in range(WINDOW_DAYS):
                opens = midnight + timedelta(days=day)
                if opens.weekday() not in window.days:
                    continue
                starts = opens + timedelta(minutes=window.start_minute)
                ends = starts + timedelta(minutes=minutes)
                yield CalendarEntry(
                    uid=f"watch-{watch.name}-{number}-{opens:%Y%m%d}",
                    summary=_("Watch {watch} may act").format(watch=watch.name),
                    starts_at=starts.replace(tzinfo=zone).astimezone(UTC),
                    ends_at=ends.replace(tzinfo=zone).astimezone(UTC),
                    path=f"/watches/{quote(watch.name, safe='')}",
                )


def _event_lines(entry: CalendarEntry, public_url: str, now: datetime) -> Iterator[str]:
    yield from ("BEGIN:VEVENT", f"UID:{_text(entry.uid)}@gpuwatch", f"DTSTAMP:{_utc(now)}")
    yield f"DTSTART:{_utc(entry.starts_at)}"
    if entry.ends_at is not None:
        yield f"DTEND:{_utc(entry.ends_at)}"
    yield f"SUMMARY:{_text(entry.summary)}"
    yield "TRANSP:TRANSPARENT"
    if public_url:
        yield f"URL:{public_url}{entry.path}"
    yield "END:VEVENT"


def _text(text: str) -> str:
    """One value: without a control character no text begins a line of its own."""
    return clean(text, 300).translate(_ESCAPED)


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _folded(line: str) -> bytes:
    """Lines of at most 75 bytes, no character cut."""
    parts: list[bytes] = []
    part = b""
    for character in map(str.encode, line):
        if len(part) + len(character) > _LINE_BYTES:
            parts.append(part)
            part = b" "
        part += character
    return b"\r\n".join([*parts, part]) + b"\r\n"
