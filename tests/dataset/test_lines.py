"""Lines are read completely, from any source and of any length."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.dataset.formats import file_lines as module
from gpuwatch.dataset.formats.file_lines import TOO_LONG
from gpuwatch.dataset.formats.row_files import read_lines
from gpuwatch.errors import UsageError

CONTENT = st.lists(st.sampled_from([b"\n", b"a", b"bb\r\n", b"\xff", b"ccccccccc", b"\0"]), max_size=30).map(b"".join)


@given(content=CONTENT, longest=st.integers(1, 12), packed=st.booleans())
def test_lines_are_the_file_and_go_on_from_each_of_them(
    content: bytes, longest: int, packed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / ("a.jsonl.gz" if packed else "a.jsonl")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_LINE_BYTES", longest)
        found = list(read_lines(path))
        expected = _split(content)
        assert [line.length for line in found] == [len(line) for line in expected]
        assert [line.content for line in found] == [line if len(line) <= longest else TOO_LONG for line in expected]
        for place, line in enumerate(found):
            assert list(read_lines(path, line.number + 1, line.after)) == found[place + 1 :]


def _split(content: bytes) -> list[bytes]:
    """Split at line feeds only."""
    parts = content.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"{}" * 5000, mtime=0)[:-9]])
def test_a_broken_archive_is_reported_in_a_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read"):
        list(read_lines(path))
