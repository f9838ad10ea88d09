"""`gpu = "none"`: a machine without GPUs, and the keys that do not go with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.errors import SettingsError
from gpuwatch.settings import Settings, load
from gpuwatch.testing.suite import case

WATCH = """
[[watch]]
name = "prepare"
gpu = {gpu}
min_vcpu = 8
min_ram_gib = 32
max_price = 0.10
{more}
"""


def loaded(folder: Path, more: str = "", gpu: str = '"none"') -> Settings:
    (folder / "gpuwatch.toml").write_text(WATCH.format(gpu=gpu, more=more))
    return load(env={"HOME": str(folder)}, cwd=folder)


def test_it_is_a_machine_without_gpus(tmp_path: Path) -> None:
    (watch,) = loaded(tmp_path).watches
    assert (watch.gpu_names, watch.gpu_count_min, watch.gpu_count_max) == (("none",), 0, 0)
    assert (watch.min_vcpu, watch.min_ram_gib, watch.wants_no_gpu) == (8.0, 32.0, True)


def test_keys_about_gpus_or_the_past_are_refused_in_a_line(tmp_path: Path) -> None:
    for more, text in (
        ("gpu_count = 1", 'gpu_count: expected only with GPUs, and gpu = "none" wants none'),
        ("min_vram_gib = 24", 'min_vram_gib: expected only with GPUs, and gpu = "none" wants none'),
        ("nvlink = true", 'nvlink: expected only with GPUs, and gpu = "none" wants none'),
        ('drop_by = "20%"', 'drop_by: cannot be combined with gpu = "none"'),
        ('prefer = "fastest-per-dollar"', 'prefer: cannot be combined with gpu = "none", which has no TFLOP/s'),
    ):
        with case(more), pytest.raises(SettingsError) as refused:
            loaded(tmp_path, more)
        assert [text in line for line in refused.value.faults] == [True]


def test_none_stands_alone(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match='"none" is a machine without GPUs and stands alone'):
        loaded(tmp_path, gpu='["none", "H100"]')
