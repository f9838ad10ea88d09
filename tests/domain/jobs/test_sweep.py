"""Arrays of jobs."""

from __future__ import annotations

import pytest

from gpuwatch.domain.jobs.job_values import CheckpointSpec, JobFiles
from gpuwatch.domain.jobs.queue import expand, parse_sweeps
from tests.builders_jobs import a_definition


def test_each_combination_is_a_job_of_its_own() -> None:
    base = a_definition(
        command="python train.py --lr {lr} --rank {rank}",
        checkpoint=CheckpointSpec(path="ckpt", resume="python train.py --lr {lr} --resume"),
        results=(JobFiles(source="out-{lr}/*", target="results/train"),),
    )
    found = expand(base, parse_sweeps(["lr=1e-4,2e-4", "rank=8,16"]))
    assert [one.name for one in found] == ["train-1", "train-2", "train-3", "train-4"]
    assert {one.group for one in found} == {"train"}
    third = found[2]
    assert third.command == "python train.py --lr 2e-4 --rank 8"
    assert third.env == {"lr": "2e-4", "rank": "8"}
    assert third.checkpoint is not None
    assert third.checkpoint.resume == "python train.py --lr 2e-4 --resume"
    assert third.results == (JobFiles(source="out-2e-4/*", target="results/train/train-3"),)
    assert third.resources.name == "job:train-3"


def test_without_a_sweep_it_is_one_job() -> None:
    assert expand(a_definition(), {}) == [a_definition()]


@pytest.mark.parametrize("text", ["lr", "lr=", "=1", "l r=1", "lr=1,,2"])
def test_a_wrong_sweep_says_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected KEY=VALUE,VALUE"):
        parse_sweeps([text])


def test_too_many_jobs_are_refused() -> None:
    values = ",".join(map(str, range(40)))
    with pytest.raises(ValueError, match="1,600 jobs"):
        expand(a_definition(), parse_sweeps([f"a={values}", f"b={values}"]))


def test_an_array_below_the_root_of_a_remote_stays_below_it() -> None:
    """`box:/x` would be the root of a disk."""
    spec = a_definition(results=(JobFiles(source="out", target="rclone:box:"),))
    assert expand(spec, parse_sweeps(["lr=1,2"]))[1].results[0].target == f"rclone:box:{spec.name}-2"
