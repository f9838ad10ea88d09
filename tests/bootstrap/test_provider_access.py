"""A key alone is not enough to follow launches."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.bootstrap import http_client
from gpuwatch.bootstrap.provider_access import providers_to_follow, providers_with_key
from gpuwatch.settings import load

AWS = '[providers.aws]\napi_key = "AKIA:secret-of-nobody"\n'


def test_what_runs_is_followed_only_where_there_is_a_renting_side(tmp_path: Path) -> None:
    for text, found in ((AWS, {"aws"}), (AWS + 'options = { source = "public" }\n', set())):
        (tmp_path / "gpuwatch.toml").write_text(text)
        settings = load(env={"HOME": str(tmp_path)}, cwd=tmp_path)
        assert "aws" in providers_with_key(settings)
        with http_client(settings) as http:
            assert providers_to_follow(settings, http, ["aws", "gone", "vastai"]) == found
