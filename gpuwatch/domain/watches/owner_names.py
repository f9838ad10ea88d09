"""Whose a watch, a job or a channel is, and what it is: the names under which they are stored say so.

Several watch lists may share a database. A list with `owner = "lab"` stores its watch `h100` as `lab::h100`, its job
`train` as `lab::train` (and what is rented for it as `job:lab::train`), its channel `telegram` as `lab::telegram`. A
list without an owner belongs to the installation, and stores plain names. So nothing of one owner has the key of
another's, and nobody finds it among their own.
"""

from __future__ import annotations

import re

import msgspec

JOB_PREFIX = "job:"  # of the name under which a job is stored
RUN_MARK = "@"  # between the name of a recurring job and the time of a run; in no job's own name
RENT_NAME = "rent:now"  # under which the launches of `gpuwatch rent` are stored
OWNER_PATTERN = r"^[A-Za-z0-9_-]{0,16}$"
_MARK = "::"
_OTHER_MARKS = frozenset({"job", "watch", "breaker"})  # `job::h100` would be a job, a pause `watch::` that of a watch
_OWNED = re.compile(rf"(?:job:)?([A-Za-z0-9_-]{{1,16}}){_MARK}")


def owned_name(owner: str, name: str) -> str:
    """Return the name under which something of an owner is stored; a name that already says whose it is stays."""
    return name if not owner or owner_of(name) else f"{owner}{_MARK}{name}"


def owner_of(stored_name: str) -> str:
    """Return whose it is; "": the installation's."""
    match = _OWNED.match(stored_name)
    return "" if match is None else match[1]


def plain_name(stored_name: str) -> str:
    """Return the name as its owner's settings have it."""
    owner = owner_of(stored_name)
    return stored_name.replace(f"{owner}{_MARK}", "", 1) if owner else stored_name


def is_owner(text: str) -> bool:
    """Whether an owner may have this name."""
    return re.fullmatch(OWNER_PATTERN, text) is not None and text.lower() not in _OTHER_MARKS


class Purpose(msgspec.Struct, frozen=True):
    """What the stored name `watch` stands for: a watch of the settings, with `job` the queued job of that name, or
    what a person rents by `gpuwatch rent`.
    """

    watch: str
    job: str | None

    @classmethod
    def of(cls, watch: str) -> Purpose:
        """Read a stored name."""
        return cls(watch, watch.removeprefix(JOB_PREFIX) if watch.startswith(JOB_PREFIX) else None)

    @classmethod
    def of_job(cls, job: str) -> Purpose:
        """The purpose of what is rented for the job of this name."""
        return cls(JOB_PREFIX + job, job)

    @property
    def series(self) -> str | None:
        """The name of the recurring job of which it is a run, `NAME@TIME`; None: it is none."""
        name, mark, _ = (self.job or "").partition(RUN_MARK)
        return name if mark else None

    @property
    def is_rent_now(self) -> bool:
        """Whether a person rented it, without a watch or a job."""
        return plain_name(self.watch) == RENT_NAME

    @property
    def is_of_settings(self) -> bool:
        """Whether it is a watch of the settings."""
        return self.job is None and not self.is_rent_now
