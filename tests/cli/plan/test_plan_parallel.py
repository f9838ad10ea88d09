"""`gpuwatch plan parallel`, and mixed cards in `gpuwatch plan job`."""

from __future__ import annotations

from tests.cli.conftest import Shell

JOB = ("--size-of", "8B", "--method", "qlora", "--tokens", "50M")


def test_a_plan_is_explained_and_its_files_are_written(shell: Shell) -> None:
    ran = shell("plan", "parallel", "8x H100 SXM", "--size-of", "8B", "--method", "full", "--write", "run")
    assert ran.code == 0, ran.err
    assert "DP 8, ZeRO 1 on 8× H100 SXM." in ran.out
    assert "(8-1)/8 of the gradients and of the new weights: 28.00 GB a step" in ran.out
    assert "450 GB/s one way for each card (NVLink" in ran.out
    files = sorted(path.name for path in (shell.folder / "run").iterdir())
    assert files == ["accelerate-deepspeed.yaml", "accelerate-fsdp.yaml", "deepspeed.json", "train.sh"]
    again = shell("plan", "parallel", "8x H100 SXM", "--size-of", "8B", "--method", "full", "--write", "run")
    assert (again.code, "exists" in again.err) == (2, True)


def test_cards_that_do_not_hold_it_are_exit_code_1_and_write_nothing(shell: Shell) -> None:
    ran = shell("plan", "parallel", "4x RTX 4090", "--size-of", "70B", "--method", "full", "--write", "run")
    assert ran.code == 1
    assert "do not hold it: the best layout" in ran.out
    assert not (shell.folder / "run").exists()
    found = shell("plan", "parallel", "4x RTX 4090", "--size-of", "70B", "--method", "full", "--json").json
    assert (found["fits"], found["files"], found["reasons"]) == (False, {}, [])


def test_mixed_cards_are_as_fast_as_the_slowest_and_cost_what_all_cost(shell: Shell) -> None:
    ran = shell("plan", "job", "2x RTX 4090 @ 0.40 + 2x RTX 3090 @ 0.25", "4x RTX 3090 @ 0.25", *JOB, "--json")
    assert ran.code == 0, ran.err
    mixed, slowest = ran.json["candidates"]
    assert mixed["gpu_count"] == 4
    assert mixed["price_usd_hour"] == 1.30
    assert slowest["speedup"] == [1.0, 1.0]
    assert "every step waits for the slowest, so all 4 count as RTX 3090" in mixed["warning"]
    assert slowest["warning"] is None
    shown = shell("plan", "job", "2x RTX 4090 @ 0.40 + 2x RTX 3090 @ 0.25", *JOB)
    assert "mixed cards" in shown.err


def test_cards_of_several_makers_cannot_share_a_job(shell: Shell) -> None:
    """NCCL joins NVIDIA's cards, RCCL AMD's; neither joins both."""
    priced = shell("plan", "job", "1x MI300X @ 2 + 1x H100 SXM @ 2", *JOB)
    assert (priced.code, "several makers" in priced.err) == (2, True)
    shared = shell("plan", "parallel", "1x MI300X + 1x H100 SXM", "--size-of", "8B", "--method", "qlora")
    assert (shared.code, "several makers" in shared.err) == (2, True)


def test_a_layout_of_mixed_cards_is_that_of_the_slowest(shell: Shell) -> None:
    work = ("--size-of", "8B", "--method", "qlora", "--json")
    mixed = shell("plan", "parallel", "2x RTX 4090 + 2x RTX 3090", *work)
    slowest = shell("plan", "parallel", "4x RTX 3090", *work)
    assert "every step waits for the slowest, so all 4 count as RTX 3090" in mixed.json["warning"]
    assert "mixed cards" in mixed.err
    assert mixed.json["layouts"] == slowest.json["layouts"]
    assert slowest.json["warning"] is None


def test_mixed_cards_hold_no_more_than_the_smallest(shell: Shell) -> None:
    """An H100 beside an RTX 3060 counts as two RTX 3060: 12 GiB each."""
    large = ("--size-of", "32B", "--method", "qlora", "--tokens", "1M")
    ran = shell("plan", "job", "1x H100 SXM @ 2 + 1x RTX 3060 @ 0.1", *large)
    assert ran.code == 2, ran.out
    assert "GB" in ran.err


def test_one_kind_in_two_parts_is_no_mixture_and_hours_are_stated_once(shell: Shell) -> None:
    both = shell("plan", "job", "2x A100 @ 1.00 + 2x A100 @ 2.00 for 10h", "--json").json["candidates"][0]
    assert (both["gpu_count"], both["price_usd_hour"], both["warning"]) == (4, 6.0, None)
    twice = shell("plan", "job", "2x A100 @ 1 for 5h + 2x A100 @ 2 for 10h")
    assert (twice.code, "state the hours once" in twice.err) == (2, True)
