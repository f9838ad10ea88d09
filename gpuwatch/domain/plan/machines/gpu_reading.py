"""A machine's GPUs by `nvidia-smi`, `amd-smi` or `rocm-smi`, as the runner prints them: `gpu=41,8000,81920,NVIDIA A40`.

The text is untrusted: a row that no driver prints is rejected with the name of its field. What a driver cannot measure
("[N/A]": the use of a GPU that is split by MIG, the memory of a GB10) is None, never 0. Pure.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

MOST_GPUS: Final = 64  # as the runner prints
_PREFIX: Final = "gpu="
_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
# NVIDIA's words for what it cannot say: "[Not Supported]", "[GPU is lost]" for each field of one that fell off the bus,
# "[Insufficient Permissions]" for the memory of a MIG instance (github.com/Stability-AI/StableSwarmUI/issues/388)
_UNMEASURED: Final = re.compile(r"\[[A-Za-z/ ]{1,40}\]|N/A|ERR!", re.IGNORECASE)
# "WARNING: infoROM is corrupted at gpu 0000:17:00.0" is printed among the rows, and is none
_WARNING: Final = "WARNING:"
_NAME: Final = re.compile(r"[ -~]{1,80}")
_SENTENCE: Final = 160
_MOST_MIB: Final = 10 * 1024 * 1024  # 10 TiB: fifty times the largest card


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one moment. None: not measured.

    Attributes:
        percent: share of the driver's last sample period in which a kernel ran, 0 to 100.
        used_mib: memory in use, as the driver counts it, contexts included.
        total_mib: memory of the GPU.
        name: as the driver calls it; empty: not stated.
    """

    percent: float | None = None
    used_mib: float | None = None
    total_mib: float | None = None
    name: str = ""

    @property
    def is_split(self) -> bool:
        """Whether its use is not measured although its memory is: it is split, or the driver does not measure it."""
        return self.percent is None and self.used_mib is not None


def parse_gpus(report: str) -> list[GpuReading]:
    """Parse the lines of a report that state a GPU, in their order.

    Raises:
        ValueError: a row is not one of `nvidia-smi`: which GPU, which field, and what it says.
    """
    lines = [line.removeprefix(_PREFIX).strip() for line in report.splitlines() if line.startswith(_PREFIX)]
    rows = [line for line in lines if line and not line.startswith(_WARNING)]
    if len(rows) > MOST_GPUS:
        raise ValueError(f"{len(rows)} GPUs: at most {MOST_GPUS} are read")
    return [_gpu(row, index) for index, row in enumerate(rows)]


def _gpu(row: str, index: int) -> GpuReading:
    fields = [field.strip() for field in row.split(",", 3)]
    if len(fields) < 3:  # a sentence instead, such as "No devices were found"
        raise ValueError(f"instead of GPU {index} it prints {_shown(row, _SENTENCE)}")
    name = fields[3] if len(fields) > 3 else ""
    if _UNMEASURED.fullmatch(name):
        name = ""
    if name and not _NAME.fullmatch(name):
        raise ValueError(f"GPU {index}: name: expected one line of plain text, not {_shown(name)}")
    percent = _value(fields[0], f"GPU {index}: utilization.gpu", 100)
    used = _value(fields[1], f"GPU {index}: memory.used", _MOST_MIB)
    total = _value(fields[2], f"GPU {index}: memory.total", _MOST_MIB)
    if total == 0 or (used is not None and total is not None and used > total):
        raise ValueError(f"GPU {index}: memory: {used:g} of {total:g} MiB are used" if used else f"GPU {index}: 0 MiB")
    return GpuReading(percent=percent, used_mib=used, total_mib=total, name=name)


def _value(text: str, field: str, most: float) -> float | None:
    if _UNMEASURED.fullmatch(text):
        return None
    if not _NUMBER.fullmatch(text) or (value := float(text)) > most:
        raise ValueError(f"{field}: expected a number from 0 to {most:,}, not {_shown(text)}")
    return value


def _shown(text: str, most: int = 60) -> str:
    return ascii(text[:most])


def mean_percent(gpus: list[GpuReading]) -> float | None:
    """The mean utilisation of a machine's GPUs; None: one of them is not measured."""
    known = [gpu.percent for gpu in gpus if gpu.percent is not None]
    return sum(known) / len(known) if known and len(known) == len(gpus) else None


def memory_share(gpus: list[GpuReading]) -> float | None:
    """The used share of the memory of all GPUs, 0 to 1; None: one of them is not measured."""
    known = [(gpu.used_mib, gpu.total_mib) for gpu in gpus if gpu.used_mib is not None and gpu.total_mib is not None]
    if not known or len(known) < len(gpus):
        return None
    return sum(used for used, _ in known) / sum(total for _, total in known)
