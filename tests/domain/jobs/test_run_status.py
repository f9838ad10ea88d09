"""A machine's report may contain anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.jobs.run_status import RunPhase, is_safe_path, parse_files, parse_status

REPORT = b"gpuwatch-runner=1\nrun=2\nstarted=1\nphase=ended\nreason=exit\nexit=3\nup=50\nlease=60\nlog_bytes=3\n\nabcd"


def test_a_report_is_read() -> None:
    """Header, log and the rest."""
    status = parse_status(REPORT)
    assert status is not None
    assert (status.phase, status.exit_code, status.up_s, status.log) == (RunPhase.ENDED, 3, 50, b"abc")
    assert status.metrics == b"d"


def test_odd_figures_are_unknown() -> None:
    """An impossible exit code, a word instead of a number, a phase of the future."""
    said = REPORT.replace(b"exit=3", b"exit=300").replace(b"up=50", b"up=soon").replace(b"=ended", b"=sleeping")
    status = parse_status(said)
    assert status is not None
    assert (status.exit_code, status.up_s, status.phase) == (None, None, RunPhase.STARTING)


@given(st.binary(max_size=500))
def test_nothing_that_a_machine_says_is_an_error(noise: bytes) -> None:
    """It is a valid report, or none."""
    assert parse_status(noise) is None
    assert parse_status(b"gpuwatch-runner=1\n" + noise) is not None


def test_files_outside_are_left_out() -> None:
    """A path cannot leave the folder."""
    sha = "a" * 64
    names = ["out/a.bin", "../b", "/etc/passwd", "c/../../d", "./e f", "g\\h"]
    said = "\n".join([*(f"5 {sha} 1 {name}" for name in names), f"x {sha} 1 no", f"5 {sha[:-1]} 1 short"])
    listing = parse_files(said)
    assert [file.path for file in listing.files] == ["out/a.bin", "e f"]
    assert listing.incomplete == "files whose names cannot be used here: 6, such as ../b"


def test_a_listing_says_whether_it_is_complete() -> None:
    lines = [f"5 {'a' * 64} 1 out/{number}" for number in range(20_001)]
    assert parse_files("\n".join(lines[:-1])).incomplete is None
    assert parse_files("\n".join(lines)).incomplete == "more than 20,000 files: pack them into an archive"


def test_names_in_octal_are_read_and_other_kinds_are_listed_apart() -> None:
    sha = "a" * 64
    octal = "".join(f"\\{byte:03o}" for byte in "./out/späß 1".encode())
    lines = [
        f"5 {sha} 1 {octal}", f"5 {sha} 1 ./run-1/a", "! broken ./out/b", "! folder ./out/latest run-1",
        "! folder ./out/other elsewhere", "! outside ./out/etc", r"5 " + sha + r" 1 \056\057\377",
    ]  # fmt: skip
    listing = parse_files("\n".join(lines) + "\n")
    assert [file.path for file in listing.files] == ["out/späß 1", "run-1/a"]
    assert [one.text for one in listing.left_out] == ["out/b (a link that leads nowhere)"]
    assert listing.incomplete == (
        "files whose names cannot be used here: 1, such as �; links to files outside of the work folder: 1, such as"
        " out/etc; links to folders that no pattern names: 1, such as out/other"
    )


@given(st.text(max_size=200))
def test_nothing_that_a_listing_says_is_an_error(text: str) -> None:
    for file in parse_files(f"! {text}\n5 {'a' * 64} 1 {text}\n{text}").files:
        assert is_safe_path(file.path)


@given(st.text(max_size=50))
def test_a_safe_path_stays_below(path: str) -> None:
    """Whatever it consists of."""
    if is_safe_path(path):
        assert ".." not in path.split("/")
        assert not path.startswith("/")


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        ("gpu=40,20000,80000\ngpu=60,40000,80000\n", 0.375),
        ("gpu=40,20000,80000\ngpu=60,[N/A],[N/A]\n", None),
        ("gpu=40,20000\n", None),
        ("gpu=40,20000,0\n", None),
        ("", None),
    ],
)
def test_the_share_of_gpu_memory_is_that_of_all_gpus_or_unknown(lines: str, share: float | None) -> None:
    status = parse_status(f"gpuwatch-runner=1\n{lines}\n".encode())
    assert status is not None
    assert status.gpu_memory_share == share
