"""Editing a watch keeps the rest of the file, byte for byte, and never writes a file that would not load."""

from __future__ import annotations

import difflib
import hashlib
import os
import tomllib
from pathlib import Path

import msgspec
import pytest

from gpuwatch.app.watches.edit_watch import BY_EDITOR_ALONE, draft_watch, save_draft, watch_form
from gpuwatch.errors import GpuwatchError, SettingsError, UsageError

TEXT = """\
# my settings
timezone = "Europe/Berlin"   # screens

[notify.telegram]
bot_token = "123456789:AAbbccddeeffgghhiijjkkllmmnnooppqqr"
chat_id = "42"

[[watch]] # first
name = "night"   # the name
gpu = ["H100"]
max_price = 2.50 # limit

[watch.launch]
max_runtime = "1h" # end

# the second one
[[watch]]
name = "day"
gpu = "A100"
max_price = 1.10
launch = { image = "pytorch/pytorch" }
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "gpuwatch.toml"
    file.write_text(TEXT)
    file.chmod(0o600)
    return str(file)


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[0] in "+-" and line[:3] not in {"+++", "---"}]


def test_a_changed_value_keeps_its_comment_and_every_other_line(config: str) -> None:
    draft = draft_watch(config, "night", {"max_price": "2.25", "launch.max_runtime": "2h"})
    assert changed_lines(TEXT, draft.content.decode()) == [
        "-max_price = 2.50 # limit",
        "+max_price = 2.25 # limit",
        '-max_runtime = "1h" # end',
        '+max_runtime = "2h" # end',
    ]
    assert draft.settings.watches[0].launch.max_runtime_s == 7200


def test_a_new_key_stands_in_its_own_watch_before_the_comment_of_the_next(config: str) -> None:
    draft = draft_watch(config, "night", {"launch.image": "nvidia/cuda", "hold_for": "5m"})
    after = draft.content.decode()
    assert 'max_runtime = "1h" # end\nimage = "nvidia/cuda"\n' in after
    assert "# the second one\n[[watch]]" in after
    assert changed_lines(TEXT, after) == ['+hold_for = "5m"', '+image = "nvidia/cuda"']


def test_a_key_in_an_inline_table(config: str) -> None:
    after = draft_watch(config, "day", {"launch.max_runtime": "3h"}).content.decode()
    assert 'launch = { image = "pytorch/pytorch", max_runtime = "3h" }' in after.replace('h"}', 'h" }')


def test_an_empty_value_removes_the_key(config: str) -> None:
    after = draft_watch(config, "night", {"launch.max_runtime": ""}).content.decode()
    assert changed_lines(TEXT, after) == ['-max_runtime = "1h" # end']


def test_what_the_form_shows_changes_nothing_when_sent_back(config: str) -> None:
    form = watch_form(config, "night")
    draft = draft_watch(config, "night", {field.key: field.text for field in form.fields})
    assert (draft.content, draft.diff) == (TEXT.encode(), "")


def test_texts_are_shown_without_quotes_unless_they_would_be_read_as_something_else(config: str) -> None:
    file = Path(config)
    file.write_text(
        TEXT.replace('name = "night"', 'name = "42"').replace('"1h" # end', '"1h"\nonstart = """\na\nb\n"""')
    )
    shown = {field.key: field.text for field in watch_form(config, "42").fields}
    assert (shown["name"], shown["gpu"], shown["launch.max_runtime"]) == ('"42"', '["H100"]', "1h")
    assert shown["launch.onstart"] == "a\nb"
    same = draft_watch(config, "42", {"launch.onstart": "a\r\nb\r\n"})
    assert same.content == file.read_bytes()
    other = draft_watch(config, "42", {"launch.onstart": "a\r\nc"})
    assert tomllib.loads(other.content.decode())["watch"][0]["launch"]["onstart"] == "a\nc"


def test_a_new_watch_comes_last(config: str) -> None:
    values = {"name": "spot", "gpu": '["RTX 4090", "RTX 5090"]', "max_price": "0.30", "launch.onstart": "a\nb"}
    draft = draft_watch(config, None, values)
    tree = tomllib.loads(draft.content.decode())
    assert draft.content.decode().startswith(TEXT)
    assert tree["watch"][2] == {
        "name": "spot", "gpu": ["RTX 4090", "RTX 5090"], "max_price": 0.3, "launch": {"onstart": "a\nb"},
    }  # fmt: skip
    assert draft.name == "spot"


def test_a_wrong_value_is_refused_with_its_key(config: str) -> None:
    with pytest.raises(SettingsError, match="max_price"):
        draft_watch(config, "night", {"max_price": "cheap"})
    with pytest.raises(UsageError, match="did you mean night"):
        draft_watch(config, "nigth", {})


@pytest.mark.parametrize("key", [*sorted(BY_EDITOR_ALONE), "launch.nonsense", "__class__", "launch"])
def test_what_runs_here_or_holds_a_secret_is_not_changed(config: str, key: str) -> None:
    with pytest.raises(UsageError, match="cannot be edited here"):
        draft_watch(config, "night", {key: "touch /tmp/x"})


def test_the_diff_shows_no_secret(config: str) -> None:
    file = Path(config)
    file.write_text(TEXT.replace("max_price = 2.50 # limit", 'max_price = 2.50 # api_key = "topsecret123"'))
    assert "topsecret" not in draft_watch(config, "night", {"max_price": "2.25"}).diff


def test_saving_writes_the_whole_file_and_keeps_its_mode(config: str) -> None:
    draft = draft_watch(config, "night", {"max_price": "2.25"})
    save_draft(draft, draft.version)
    assert Path(config).read_bytes() == draft.content
    assert Path(config).stat().st_mode & 0o777 == 0o600
    assert os.listdir(Path(config).parent) == ["gpuwatch.toml"]


def test_a_file_that_changed_meanwhile_is_left_alone(config: str) -> None:
    draft = draft_watch(config, "night", {"max_price": "2.25"})
    Path(config).write_text(TEXT + "\n# by hand\n")
    with pytest.raises(UsageError, match="has changed in the meantime"):
        save_draft(draft, draft.version)
    assert Path(config).read_text().endswith("# by hand\n")


def test_a_link_to_the_file_stays_a_link(config: str, tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(config)
    draft = draft_watch(str(link), "night", {"max_price": "2.25"})
    save_draft(draft, draft.version)
    assert link.is_symlink()
    assert b"2.25" in Path(config).read_bytes()


def test_without_a_file_there_is_nothing_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    if not Path("/etc/gpuwatch/gpuwatch.toml").exists():
        with pytest.raises(UsageError, match="gpuwatch init"):
            watch_form(None, None)


def test_a_file_that_cannot_be_written_says_so(config: str) -> None:
    draft = draft_watch(config, "night", {"max_price": "2.25"})
    read_only = Path("/proc/version")  # in a folder where nobody can create a file, not even root
    version = hashlib.sha256(read_only.read_bytes()).hexdigest()[:16]
    with pytest.raises(GpuwatchError, match="cannot write"):
        save_draft(msgspec.structs.replace(draft, file=read_only, version=version), version)


def test_what_a_watch_inherits_is_shown_as_inherited_and_never_written_into_it(config: str) -> None:
    file = Path(config)
    groups = '[defaults.watch]\nspot = "any"\n[group.late]\nregions = ["EU"]\nlaunch.max_tries = 2\n'
    text = file.read_text().replace('name = "night"', 'name = "night"\ngroup = "late"')
    file.write_text(text + groups)
    fields = {field.key: field for field in watch_form(config, "night").fields}
    assert (fields["regions"].text, fields["regions"].inherited) == ("", '["EU"]')
    assert (fields["regions"].origin, fields["spot"].origin) == ("group late", "defaults")
    assert (fields["launch.max_tries"].inherited, fields["launch.max_tries"].is_heir) == ("2", True)
    assert draft_watch(config, "night", {field.key: field.text for field in fields.values()}).diff == ""
    changed = draft_watch(config, "night", {"launch.max_tries": "3"})
    assert [line for line in changed.diff.splitlines() if line.startswith("+") and "+++" not in line] == [
        "+max_tries = 3"
    ]
    assert {field.key: field.inherited for field in watch_form(config, None).fields if field.inherited} == {
        "spot": "any"
    }
