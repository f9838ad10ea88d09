from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.launches.instance import LABEL_LENGTH, LabelIds, label_ids, label_of, launch_id_in

LAUNCH, INSTALL, WATCH = "abcdefghij23", "install2", "watchid7"
WHOLE = "gpuwatch-abcdefghij23-install2-watchid7"


def test_a_label_names_its_launch_its_installation_and_its_watch() -> None:
    label = label_of(LAUNCH, install_id=INSTALL, watch_id=WATCH)
    assert label == WHOLE
    assert label_ids(label) == LabelIds(LAUNCH, INSTALL, WATCH)


def test_a_label_of_an_older_gpuwatch_names_its_launch() -> None:
    assert label_of(LAUNCH) == "gpuwatch-abcdefghij23"
    assert label_of(LAUNCH, "mine") == "gpuwatch-abcdefghij23 mine"
    assert label_ids("gpuwatch-abcdefghij23 mine") == LabelIds(LAUNCH, None, None)


def test_the_text_of_the_owner_gets_what_is_left() -> None:
    label = label_of(LAUNCH, "x" * 38, install_id=INSTALL, watch_id=WATCH)
    assert label == WHOLE + " " + "x" * 20
    assert len(label) == LABEL_LENGTH


@pytest.mark.parametrize(
    ("length", "label"),
    [
        (64, WHOLE + " a job of the night"),
        (44, WHOLE + " a jo"),
        (41, WHOLE + " a"),
        (40, WHOLE),
        (38, "gpuwatch-abcdefghij23-install2 a job o"),
        (30, "gpuwatch-abcdefghij23-install2"),
        (29, "gpuwatch-abcdefghij23 a job o"),
        (10, "gpuwatch-abcdefghij23"),
    ],
)
def test_an_id_is_whole_or_left_out(length: int, label: str) -> None:
    made = label_of(LAUNCH, "a job of the night", install_id=INSTALL, watch_id=WATCH, length=length)
    assert made == label


@given(st.integers(21, 80), st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=38))
def test_every_label_fits_and_names_its_launch(length: int, extra: str) -> None:
    label = label_of(LAUNCH, extra, install_id=INSTALL, watch_id=WATCH, length=length)
    assert len(label) <= length
    assert launch_id_in(label) == LAUNCH


@given(st.integers(21, 60))
def test_a_label_that_a_provider_cut_still_names_its_launch(length: int) -> None:
    label = label_of(LAUNCH, "night run", install_id=INSTALL, watch_id=WATCH)[:length]
    found = label_ids(label)
    assert found is not None
    assert found.launch_id == LAUNCH
    assert found.install_id in {None, INSTALL}
    assert found.watch_id in {None, WATCH}


@pytest.mark.parametrize(
    "label",
    [
        None,
        "",
        "gpuwatch-",
        "gpuwatch-abc",
        "gpuwatch-abcdefghij018",
        "gpuwatch-abcdefghij23x",
        "gpuwatch-abcdefghij23-INSTALL2",
        "gpuwatch-abcdefghij23-install2-watchid7-more",
        "xgpuwatch-abcdefghij23",
        "gpuwatch-abcdefghij23\n",
    ],
)
def test_a_similar_label_names_nothing(label: str | None) -> None:
    assert launch_id_in(label) is None
