"""Peaks of training of diffusion models, as published, and what is counted."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gpuwatch.domain.plan.architectures.language_models import model_from_config
from gpuwatch.domain.plan.memory_need import OVERHEAD_GB, memory_need
from gpuwatch.domain.plan.roofline import Precision, TrainingMethod
from gpuwatch.domain.plan.workload import Workload
from tests.domain.plan.networks.test_network_speed import SD_2
from tests.domain.plan.networks.test_networks import FLUX, SD_15, SDXL, WHISPER, network

FULL, LORA, QLORA = TrainingMethod.FULL, TrainingMethod.LORA, TrainingMethod.QLORA
# DreamBooth with prior preservation computes two images for each of a batch
_SHIVAM: Final = "github.com/ShivamShrirao/diffusers, examples/dreambooth/README.md: SD 1.4 on a T4, latents cached"
_MOSAIC: Final = "github.com/mosaicml/diffusion/issues/28: SD 2 at 256 × 256, 64 images, about 30 GB"
_BGHIRA: Final = "github.com/bghira/SimpleTuner, documentation/quickstart/FLUX.md: rank 16, all matrices"
PUBLISHED: list[tuple[dict[str, Any], TrainingMethod, dict[str, Any], float, str]] = [
    (SD_15, FULL, {"optimizer": "adamw8bit", "recompute": False, "batch": 2}, 11.17, _SHIVAM),
    (SD_15, FULL, {"optimizer": "adamw8bit", "recompute": False, "batch": 4}, 13.67, _SHIVAM),
    (SD_15, FULL, {"optimizer": "adamw8bit", "batch": 2}, 9.92, _SHIVAM),
    (SD_15, FULL, {"optimizer": "adamw8bit", "batch": 4}, 10.4, _SHIVAM),
    (SD_15, FULL, {"batch": 2}, 15.79, _SHIVAM),
    (SD_2 | {"sample_size": 32}, FULL, {"batch": 64, "recompute": False}, 30.0, _MOSAIC),
    (FLUX, LORA, {}, 30.0, _BGHIRA),
    (FLUX, QLORA, {}, 9.0, _BGHIRA),
]  # fmt: skip


def need(fields: dict[str, Any], method: TrainingMethod, **more: Any) -> Any:
    return memory_need(Workload(model=model_from_config(fields, "x"), method=method, **more))


@pytest.mark.parametrize(("fields", "method", "keys", "gb", "source"), PUBLISHED)
def test_the_published_peaks_of_training_come_out(
    fields: dict[str, Any], method: TrainingMethod, keys: dict[str, Any], gb: float, source: str
) -> None:
    assert source
    allowed = 0.22 if method is QLORA else 0.08  # "a bit more than 9"
    assert need(fields, method, **keys).gb + OVERHEAD_GB == pytest.approx(gb, rel=allowed)


def test_adapters_are_counted_for_all_matrices_and_four_bits_for_matrices_alone() -> None:
    shape = network(SDXL)
    found = {part.name: part.gb for part in need(SDXL, LORA, rank=4).parts}
    assert found["adapters"] == pytest.approx(4 * shape.adapted * 4 / 1e9)
    held = {part.name: part.gb for part in need(SDXL, QLORA).parts}
    assert held["no matrices"] == pytest.approx((shape.params - shape.matrices) * 2 / 1e9)
    assert held["weights"] == pytest.approx(shape.matrices * (0.5 + 0.127 / 8) / 1e9)
    assert 0.5 < shape.matrices / shape.params < 0.95, "convolutions are no matrices"
    with pytest.raises(ValueError, match="targets qv: adapters of UNet2DConditionModel are counted for all matrices"):
        need(SDXL, LORA, targets="qv")
    assert need(WHISPER, LORA, targets="qv").gb > 3, "its matrices have roles"
    assert (
        need(SDXL, TrainingMethod.INFERENCE, precision=Precision.INT4).gb
        < need(SDXL, TrainingMethod.INFERENCE).gb / 1.5
    )
