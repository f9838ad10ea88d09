"""Parse the reports of the runner on a machine, which are untrusted text. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from gpuwatch.domain.launches.interruption import InterruptionNotice, parse_notice
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.plan.machines.gpu_reading import GpuReading, mean_percent, memory_share, parse_gpus

HEADER_MAX = 8192
_WHOLE = re.compile(r"[0-9]{1,15}")
_LISTED = re.compile(r"([0-9]{1,15}) ([0-9a-f]{64}) (-?[0-9]{1,12}) (.+)")
_OTHER = re.compile(r"! ([a-z]{1,20}) (\S.*?)(?: (\S+))?")
_OCTAL = re.compile(r"(\\[0-7]{3})+")
_PATH_MAX = 400
_FILES_MAX = 20_000  # runner.sh lists one more

_LOST = {  # kinds whose content would be lost
    "name": "files whose names cannot be used here",
    "unreadable": "files and folders that may not be read",
    "outside": "links to files outside of the work folder",
    "folder": "links to folders that no pattern names",
}
_LEFT_OUT = {
    "broken": "a link that leads nowhere",
    "empty": "an empty folder",
    "special": "no regular file",
    "hidden": "hidden: no pattern names it",
}


class RunPhase(StrEnum):
    """The state of the runner."""

    ABSENT = "absent"  # nothing was started there
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class RunnerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One report of the runner.

    Attributes:
        reason: why it ended: `exit`, `lease`, `deadline`, `idle`, or a line of text.
        exit_code: of the command; None: it has not ended, or its end was not observed.
        up_s: the machine's uptime at the time of the report; the only clock of the machine that counts.
        lease_until_s: end of the lease, as an uptime.
        gpu_percent: mean utilisation of its GPUs; None: not measured.
        gpu_memory_share: used share of the memory of all its GPUs, 0 to 1.
        log_size: size of the log in bytes.
        log: the requested part of the log.
        metrics: the end of the command's own metrics file, if it writes one.
        notice: of the provider, as the machine's metadata has it; None: it has none, or it is not read.
    """

    phase: RunPhase = RunPhase.ABSENT
    reason: str = ""
    exit_code: int | None = None
    up_s: int | None = None
    lease_until_s: int | None = None
    gpu_percent: float | None = None
    gpu_memory_share: float | None = None
    load: float | None = None
    cpus: int | None = None
    cpu_jiffies: tuple[int, int, int] | None = None  # busy, idle, waiting for a disk
    log_size: int = 0
    log: bytes = b""
    metrics: bytes = b""
    notice: InterruptionNotice | None = None


class MachineFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the machine's listing. `age_s`: time since its last change, by the machine's own clock."""

    path: str
    size: int
    sha256: str
    age_s: int


def parse_status(report: bytes) -> RunnerStatus | None:
    """Parse a report; None: the text is not a report."""
    head, _, rest = report.partition(b"\n\n")
    lines = head[:HEADER_MAX].decode("ascii", "replace").splitlines()
    if not lines or lines[0] != "gpuwatch-runner=1":
        return None
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    whole = {name: int(text) for name, text in values.items() if _WHOLE.fullmatch(text)}
    log_bytes = whole.get("log_bytes", 0)
    gpus = _gpus(lines)
    exit_code = whole.get("exit")
    return RunnerStatus(
        phase=_phase(values),
        reason=clean(values.get("reason", "")),
        exit_code=exit_code if exit_code is not None and exit_code < 256 else None,
        up_s=whole.get("up"),
        lease_until_s=whole.get("lease"),
        gpu_percent=mean_percent(gpus),
        gpu_memory_share=memory_share(gpus),
        load=_number(values.get("load", "")),
        cpus=whole.get("cpus"),
        cpu_jiffies=_jiffies(values.get("cpu_jiffies", "")),
        log_size=whole.get("log_size", 0),
        log=rest[:log_bytes],
        metrics=rest[log_bytes:],
        notice=parse_notice(*values.get("notice", "").split(" ", 1)),
    )


class LeftOut(NamedTuple):
    """What matches but is not fetched. `leads_to`: of a link to a folder, relative to the work folder if below it."""

    path: str
    kind: str
    leads_to: str = ""

    @property
    def text(self) -> str:
        """It and why, for display."""
        return f"{clean(self.path)[:80]} ({_LEFT_OUT.get(self.kind, _LOST.get(self.kind, 'unknown'))})"


class FileListing(NamedTuple):
    """The files of a machine that match.

    Attributes:
        incomplete: why content would be lost without the machine; None: it would not.
        left_out: what matches, too, but has no content of its own.
    """

    files: list[MachineFile]
    incomplete: str | None = None
    left_out: tuple[LeftOut, ...] = ()


def parse_files(report: str) -> FileListing:
    """Parse a listing of files; files with an unsafe path are left out."""
    found: dict[str, MachineFile] = {}
    others: list[LeftOut] = []
    lines = report.split("\n")[:-1] if report.endswith("\n") else report.splitlines()
    for line in lines:
        if (other := _left_out(line)) is not None:
            others.append(other)
        elif (parts := _LISTED.fullmatch(line)) is None or not is_safe_path(path := _decoded(parts[4])):
            others.append(LeftOut(line if parts is None else path.removeprefix("./"), "name"))
        else:
            path = path.removeprefix("./")
            found[path] = MachineFile(path=path, size=int(parts[1]), sha256=parts[2], age_s=int(parts[3]))
    others = [one for one in others if one.kind != "folder" or not _is_below(one.leads_to, found)]
    incomplete = "; ".join(
        f"{text}: {len(those)}, such as {clean(those[0].path)[:80]}"
        for kind, text in _LOST.items()
        if (those := [one for one in others if one.kind == kind])
    )
    if not incomplete and len(lines) > _FILES_MAX:
        incomplete = f"more than {_FILES_MAX:,} files: pack them into an archive"
    left_out = tuple(one for one in others if one.kind not in _LOST)
    return FileListing(list(found.values()), incomplete or None, left_out)


def _left_out(line: str) -> LeftOut | None:
    if (parts := _OTHER.fullmatch(line)) is None:
        return None
    leads_to = _decoded(parts[3] or "").removeprefix("./")
    return LeftOut(_decoded(parts[2]).removeprefix("./"), parts[1], leads_to)


def _is_below(folder: str, files: Mapping[str, MachineFile]) -> bool:
    """Whether a folder's files are listed by their own names, so that a link to it adds nothing."""
    return bool(folder) and any(path.startswith(f"{folder}/") for path in files)


def _decoded(name: str) -> str:
    """Return a name that may be written in octal. Bytes that are not UTF-8 stay unprintable, so it is not safe."""
    if not _OCTAL.fullmatch(name):
        return name
    codes = bytes(int(code, 8) & 0xFF for code in name.split("\\")[1:])
    return codes.decode("utf-8", "surrogateescape")


def is_safe_path(path: str) -> bool:
    """Whether a path stays inside the folder that it is relative to, and is printable."""
    parts = path.removeprefix("./").split("/")
    return len(path) <= _PATH_MAX and path.isprintable() and "\\" not in path and not {"", ".", ".."} & set(parts)


def _phase(values: Mapping[str, str]) -> RunPhase:
    if "started" not in values:
        return RunPhase.ABSENT
    try:
        return RunPhase(values.get("phase", "starting"))
    except ValueError:
        return RunPhase.STARTING


def _jiffies(text: str) -> tuple[int, int, int] | None:
    parts = text.split(",")
    if len(parts) != 3 or not all(_WHOLE.fullmatch(part) for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text) else None


def _gpus(lines: Sequence[str]) -> list[GpuReading]:
    """The GPUs; none if a row is nonsense: then nothing is known of any of them."""
    try:
        return parse_gpus("\n".join(lines))
    except ValueError:
        return []
