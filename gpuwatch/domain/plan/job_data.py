"""The data that a job moves and stores: model, data set, checkpoints; derived if the owner does not state it."""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

from gpuwatch.domain.plan.figures import FigureRange, exactly
from gpuwatch.domain.plan.memory_need import (
    GB,
    OPTIMIZER_BYTES,
    TrainingMethod,
    Workload,
    bytes_per_weight,
    lora_params,
)

PUBLISHED_BYTES: Final = 2.0  # per parameter: models are published in 16 bits
BYTES_PER_TOKEN: Final = 4.0  # of plain text; assumed: four letters a token, as in OpenAI's rule of thumb for English
SYSTEM_GB: Final = 20.0  # assumed: the image, its packages, and logs
LOAD_GB_S: Final = FigureRange(140 / 420, 140 / 300)  # the articles: a 70B model loads in 5 to 7 minutes
_ADAPTER_BYTES: Final = 4.0


class JobData(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in GB, and the time to load the model, for a job with a known model."""

    model_gb: float  # as downloaded
    data_gb: float
    checkpoint_gb: float
    load_s: FigureRange

    @property
    def download_gb(self) -> float:
        """The data to fetch before the first start."""
        return self.model_gb + self.data_gb

    @property
    def disk_gb(self) -> float:
        """The disk size that the job needs, in tens of GB."""
        return ceil((self.download_gb + self.checkpoint_gb + SYSTEM_GB) / 10) * 10.0


def data_of(work: Workload, tokens: float | None) -> JobData:
    """The data that a workload moves and stores.

    Args:
        tokens: tokens of the data set, each once; None: unknown and left out.
    """
    params = work.model.params
    each = bytes_per_weight(work) if work.method is TrainingMethod.INFERENCE else PUBLISHED_BYTES
    model_gb = params * each / GB
    return JobData(
        model_gb=model_gb,
        data_gb=(tokens or 0.0) * BYTES_PER_TOKEN / GB,
        checkpoint_gb=_checkpoint_gb(work),
        load_s=FigureRange(model_gb / LOAD_GB_S.high, model_gb / LOAD_GB_S.low) if params else exactly(0.0),
    )


def _checkpoint_gb(work: Workload) -> float:
    """The size of one checkpoint: the trained weights and the optimizer's state."""
    if not work.trains:
        return 0.0
    states = OPTIMIZER_BYTES[work.optimizer]
    if work.method is TrainingMethod.FULL:
        return work.model.params * (PUBLISHED_BYTES + states + (4.0 if work.master else 0.0)) / GB
    return lora_params(work.model.shape, work.rank, work.targets) * (_ADAPTER_BYTES + states) / GB
