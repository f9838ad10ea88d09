"""One instance as in a provider's list, and the label by which it is found again. Pure.

A missing value is None, never 0. The label is `gpuwatch-<launch id>-<install id>-<watch id> <text of the owner>`. The
launch id alone identifies the instance. The other two show its origin if the launch is not in the database: another
installation, or a launch rented after the backup that was restored.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from gpuwatch.domain.launches.interruption import InterruptionNotice

CHANGING_EVERY_S = 3.0  # between two lists of instances while a launch is changing
RUNNING_EVERY_S = 10.0  # while everything runs

LABEL_PREFIX = "gpuwatch-"
LABEL_LENGTH = 60  # every provider at which gpuwatch rents accepts this length; a plugin's may accept less
EXTRA_LENGTH = 20  # the part of `LABEL_LENGTH` that the ids leave to the text of the owner
_ID_LENGTH = 8
# A launch id stays readable even if a provider cut off the rest; the owner's text follows after a space.
_SSH_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,252}[A-Za-z0-9])?")
_SSH_USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_LABEL: Final = r"gpuwatch-([a-z2-7]{12})(?:-([a-z2-7]{0,8}))?(?:-([a-z2-7]{0,8}))?(?: .*)?"


class SshAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a machine's SSH server listens."""

    host: str
    port: int
    user: str = "root"

    @property
    def is_usable(self) -> bool:
        """Whether it may be passed to a client or shown as a command: the provider's text is hostile until then."""
        is_named = _SSH_HOST.fullmatch(self.host) and _SSH_USER.fullmatch(self.user)
        return bool(is_named and 0 < self.port < 65_536)

    @property
    def command(self) -> str:
        """Return the command line that logs in."""
        return f"ssh -p {self.port} {self.user}@{self.host}"


class InstanceState(StrEnum):
    """The state of a rented instance; `Instance.status` holds the provider's own text."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"  # not running; its disk is billed
    OFFLINE = "offline"  # its host is unreachable and may come back
    FAILED = "failed"  # does not start by itself
    EXITED = "exited"  # its container ended by itself; its disk is billed
    ENDING = "ending"  # the provider is deleting it; it never runs again
    ENDED = "ended"  # the provider states that it has ended; in no list, only in the answer about one instance
    UNKNOWN = "unknown"  # an unknown status, or no heartbeat


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One instance at a provider. Text is cleaned; prices are the provider's own, without commission."""

    instance_id: str
    label: str | None
    state: InstanceState
    status: str  # the provider's own text
    machine_id: str | None = None
    gpu: str | None = None  # canonical name
    gpu_wire: str | None = None
    gpu_count: int | None = None
    gpu_memory_gib: float | None = None  # of one GPU
    disk_gb: float | None = None
    cuda: float | None = None  # the newest version that the driver supports
    spot: bool | None = None
    listed_usd_hour: float | None = None  # while it runs, including its disk
    stopped_usd_hour: float | None = None  # while it does not run: its disk
    bid_usd_hour: float | None = None  # the current bid, without disk; spot only
    min_bid_usd_hour: float | None = None  # the lowest bid that would run
    gpu_utilisation: float | None = None  # percent; None: not measured, never 0
    ssh_host: str | None = None
    ssh_port: int | None = None
    ssh_user: str | None = None  # None: root
    started_at: datetime | None = None
    ends_at: datetime | None = None  # when the host ends the contract
    maintenance_at: datetime | None = None
    interruption: InterruptionNotice | None = None  # it is taken back, by the provider's own notice; spot only
    unknown_status: str | None = None  # a word in its status that gpuwatch does not know; None: all are known
    is_placed: bool = True  # False: the provider or orchestrator found no machine for it, and nothing was billed

    @property
    def ssh(self) -> SshAddress | None:
        """Return where to log in; None: the provider does not state it, or states nonsense."""
        if self.ssh_host is None:
            return None
        address = SshAddress(host=self.ssh_host, port=self.ssh_port or 22, user=self.ssh_user or "root")
        return address if address.is_usable else None


class LabelIds(NamedTuple):
    """The content of a label. None: the label does not contain it, as labels of older versions."""

    launch_id: str
    install_id: str | None
    watch_id: str | None


def label_of(
    launch_id: str,
    extra: str | None = None,
    *,
    install_id: str | None = None,
    watch_id: str | None = None,
    length: int = LABEL_LENGTH,
) -> str:
    """Return the label of a launch's instance.

    Args:
        extra: the owner's text; cut to the remaining length.
        length: the maximum length at the provider. The launch id is always complete; the other ids are complete or
            absent.
    """
    label = LABEL_PREFIX + launch_id
    for part in (install_id, watch_id):
        if part is None or len(label) + 1 + len(part) > length:
            break
        label = f"{label}-{part}"
    return f"{label} {extra}"[: max(length, len(label))].rstrip() if extra else label


def label_ids(label: str | None) -> LabelIds | None:
    """Return the content of a label; None: it is not one of gpuwatch's, however similar."""
    found = re.fullmatch(_LABEL, label or "")
    if found is None:
        return None
    launch_id, *others = found.groups()
    install_id, watch_id = (one if one and len(one) == _ID_LENGTH else None for one in others)
    return LabelIds(launch_id, install_id, watch_id)


def launch_id_in(label: str | None) -> str | None:
    """Return the launch id in a label; None: it is not one of gpuwatch's."""
    found = label_ids(label)
    return None if found is None else found.launch_id
