"""Secrets in `.env`: every other line stays, and what is written is read back."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.app.setup.first_watch.env_file import add_to_env_file, with_variables
from gpuwatch.settings.external_values import read_dotenv


def test_other_lines_stay_and_a_variable_is_replaced_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("# mine\nexport VAST_API_KEY=old\nOTHER = 'a b'\n\n# end")
    path.chmod(0o644)
    add_to_env_file(path, {"VAST_API_KEY": "new", "TOKEN": "1:x"})
    assert path.read_text() == "# mine\nVAST_API_KEY=new\nOTHER = 'a b'\n\n# end\nTOKEN=1:x\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_dotenv(tmp_path) == {"VAST_API_KEY": "new", "OTHER": "a b", "TOKEN": "1:x"}


@given(st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), min_size=1, max_size=40))
def test_whatever_a_secret_holds_comes_back(secret: str) -> None:
    text = with_variables("A=1", {"SECRET": secret})
    assert dotenv_values(stream=StringIO(text), interpolate=False) == {"A": "1", "SECRET": secret}
