"""What a job moves and stores: its model, its data, its checkpoints; derived where the owner does not say."""

from __future__ import annotations

from math import ceil
from typing import Final

import msgspec

from gpuwatch.domain.planning.figures import FigureRange, exactly
from gpuwatch.domain.planning.memory_need import (
    GB,
    OPTIMIZER_BYTES,
    TrainingMethod,
    Workload,
    bytes_per_weight,
    lora_params,
)

PUBLISHED_BYTES: Final = 2.0  # of a parameter: models are published in 16 bits
BYTES_PER_TOKEN: Final = 4.0  # of plain text; assumed: four letters a token, as in OpenAI's rule of thumb for English
SYSTEM_GB: Final = 20.0  # assumed: the image, its packages, and logs
LOAD_GB_S: Final = FigureRange(140 / 420, 140 / 300)  # the articles: a 70B model loads in 5 to 7 minutes
_ADAPTER_BYTES: Final = 4.0


class JobData(msgspec.Struct, frozen=True, kw_only=True):
    """GB, and the time to load the model, of a job whose model is known."""

    model_gb: float  # as downloaded
    data_gb: float
    checkpoint_gb: float
    load_s: FigureRange

    @property
    def download_gb(self) -> float:
        """What is fetched before the first start."""
        return self.model_gb + self.data_gb

    @property
    def disk_gb(self) -> float:
        """What the disk must hold, in tens of GB."""
        return ceil((self.download_gb + self.checkpoint_gb + SYSTEM_GB) / 10) * 10.0


def data_of(work: Workload, tokens: float | None) -> JobData:
    """What a workload moves and stores.

    Args:
        tokens: of the data, each once; None: unknown, and left out.
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
    """One checkpoint: the weights that are trained, and the optimizer's state."""
    if not work.trains:
        return 0.0
    states = OPTIMIZER_BYTES[work.optimizer]
    if work.method is TrainingMethod.FULL:
        return work.model.params * (PUBLISHED_BYTES + states + (4.0 if work.master else 0.0)) / GB
    return lora_params(work.model.shape, work.rank, work.targets) * (_ADAPTER_BYTES + states) / GB
