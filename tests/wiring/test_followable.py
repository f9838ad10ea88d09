"""A key alone does not look after what runs."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.settings import load
from gpuwatch.wiring import http_client
from gpuwatch.wiring.access import followable, keyed

AWS = '[providers.aws]\napi_key = "AKIA:secret-of-nobody"\n'


def test_what_runs_is_followed_only_where_there_is_a_renting_side(tmp_path: Path) -> None:
    for text, found in ((AWS, {"aws"}), (AWS + 'options = { source = "public" }\n', set())):
        (tmp_path / "gpuwatch.toml").write_text(text)
        settings = load(env={"HOME": str(tmp_path)}, cwd=tmp_path)
        assert "aws" in keyed(settings)
        with http_client(settings) as http:
            assert followable(settings, http, ["aws", "gone", "vastai"]) == found
