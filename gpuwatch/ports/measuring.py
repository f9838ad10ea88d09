"""The port of measurements: a GPU of this machine that trains and decodes synthetic models."""

from __future__ import annotations

from typing import Protocol

import msgspec

from gpuwatch.domain.plan.own_rows import SyntheticRun


class CannotMeasure(Exception):
    """Nothing can be measured here, or not this run. The text says why, in one line."""


class RunOutOfMemory(CannotMeasure):
    """The run does not fit into the GPU's memory."""


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What measures, and with what. Empty texts: unknown."""

    gpu: str  # as the driver names it
    memory_gib: float
    torch: str
    cuda: str
    driver: str


class MeasuredSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The time of each step in seconds, the warm-up left out, and the most memory that PyTorch allocated."""

    step_s: tuple[float, ...]
    peak_bytes: int | None  # None: the device does not count it


class Accelerator(Protocol):
    """A device with a library for tensors."""

    def facts(self) -> DeviceFacts:
        """What it is."""

    def train(self, run: SyntheticRun) -> MeasuredSteps:
        """Steps of training with random weights and tokens. Raises CannotMeasure, RunOutOfMemory."""

    def decode(self, run: SyntheticRun) -> MeasuredSteps:
        """Steps of decoding, one more token of each sequence in each. Raises CannotMeasure, RunOutOfMemory."""
