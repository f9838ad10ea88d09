"""A GPU by what a person types."""

from __future__ import annotations

import pytest

from gpuwatch.app.setup.first_watch.gpu_choice import chosen_gpu, similar_gpus


@pytest.mark.parametrize(
    ("text", "name", "watch"),
    [
        ("4090", "RTX 4090", "rtx-4090"),
        ("h100", "H100", "h100"),
        ("H100_SXM", "H100 SXM", "h100-sxm"),
        ("a100 80gb", "a100 80gb", "a100-80gb"),
    ],
)
def test_any_spelling_gets_the_usual_name(text: str, name: str, watch: str) -> None:
    choice = chosen_gpu(text)
    assert choice is not None
    assert (choice.name, choice.watch_name) == (name, watch)
    again = chosen_gpu(choice.name)
    assert again is not None
    assert again.names == choice.names


def test_a_part_of_a_name_or_a_slip_names_the_near_ones() -> None:
    assert chosen_gpu("409") is None
    assert similar_gpus("409")[0] == "RTX 4090"
    assert "H100" in similar_gpus("H10O")
    assert similar_gpus("zzzz") == ()
