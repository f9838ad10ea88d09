"""`{ from_env }`, `{ from_file }`, `onstart_file` and `ssh_key`: read with the settings, and never shown."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.bootstrap import secrets_of
from gpuwatch.domain.setup.fields import table_of
from gpuwatch.domain.watches.launch_spec import HookSpec, LaunchSpec
from gpuwatch.domain.watches.launch_text import MAX_ONSTART, MAX_ONSTART_SELF_DESTRUCT
from gpuwatch.providers.vastai.create import ONSTART_LENGTH, RUNTYPES, with_self_destruct
from gpuwatch.secret import Secret
from gpuwatch.settings import load

WATCH = '[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 3.60\n[watch.launch]\n'
ALL = (
    WATCH
    + """
env = { TOKEN = { from_env = "MY_TOKEN" }, FILE = { from_file = "hf" }, MODE = "offline" }
registry = { server = "ghcr.io", username = "me", password = { from_file = "./pw" } }
on_running = { url = { from_env = "HOOK_URL" }, secret = { from_env = "HOOK_SECRET" } }
on_ended = { url = "https://h.example.org/x", secret = { from_file = "sign" } }
before_stop = "echo plain"
onstart_file = "train.sh"
ssh_key = "id"
"""
)
ENV = {"MY_TOKEN": "t-env", "HOOK_URL": "https://u:p@h.example.org/y", "HOOK_SECRET": "s-env"}


@pytest.fixture
def files(home: Path) -> Path:
    """Everything that `ALL` names, next to the settings."""
    for name, text in {
        "hf": "t-file\n",
        "pw": "p-file\n",
        "sign": "s-file",
        "train.sh": "a\r\nb\n",
        "id": "key",
    }.items():
        (home / name).write_bytes(text.encode())
        (home / name).chmod(0o600)
    return home


def the_launch(settings: Any) -> LaunchSpec:
    found: LaunchSpec = settings.watches[0].launch
    return found


def test_every_reference_is_what_it_names(loaded: Any, files: Path) -> None:
    launch = the_launch(loaded(ALL, env=ENV))
    assert launch.env == {"MODE": "offline"}
    assert launch.secret_env == {"TOKEN": Secret("t-env"), "FILE": Secret("t-file")}
    assert launch.registry is not None
    assert launch.registry.password.reveal() == "p-file"
    assert launch.on_running == HookSpec(url=Secret("https://u:p@h.example.org/y"), secret=Secret("s-env"))
    assert launch.on_ended == HookSpec(url=Secret("https://h.example.org/x"), secret=Secret("s-file"))
    assert launch.before_stop == HookSpec(command="echo plain")
    assert (launch.onstart, launch.ssh_key) == ("a\nb", str(files / "id"))


def test_files_lie_beside_the_settings_file_wherever_gpuwatch_is_started(files: Path, tmp_path: Path) -> None:
    (files / "gpuwatch.toml").write_text(ALL)
    settings = load("home/gpuwatch.toml", env=ENV, cwd=tmp_path)
    assert the_launch(settings).secret_env["FILE"].reveal() == "t-file"


def test_without_a_settings_file_they_lie_in_the_current_folder(loaded: Any, files: Path) -> None:
    launch = {"env": {"A": {"from_file": "hf"}}, "onstart_file": str(files / "train.sh")}
    watch = {"name": "w", "gpu": "H100", "max_price": 1, "launch": launch}
    found = the_launch(loaded(env={"GPUWATCH_WATCH": json.dumps([watch])}))
    assert (found.secret_env, found.onstart) == ({"A": Secret("t-file")}, "a\nb")


def test_a_variable_may_stand_in_dotenv_and_the_real_environment_wins(loaded: Any) -> None:
    toml = WATCH + 'env = { A = { from_env = "A_TOKEN" } }\n'
    assert the_launch(loaded(toml, "A_TOKEN=dot\n")).secret_env == {"A": Secret("dot")}
    assert the_launch(loaded(toml, "A_TOKEN=dot\n", env={"A_TOKEN": "real"})).secret_env == {"A": Secret("real")}


MISSING = {
    'env = { A = { from_env = "NO_SUCH" } }': (
        "launch.env.A: from_env: expected an environment variable with a value; NO_SUCH is unset or empty"
    ),
    'env = { A = { from_env = "EMPTY" } }': (
        "launch.env.A: from_env: expected an environment variable with a value; EMPTY is unset or empty"
    ),
    'env = { A = { from_file = "/no/such" } }': (
        "launch.env.A: from_file: expected a text file; /no/such cannot be read: No such file"
    ),
    'registry = { server = "h", username = "u", password = { from_env = "BLANKS" } }': (
        "launch.registry.password: from_env: expected printable ASCII without spaces and quotes"
    ),
    'on_ended = { url = { from_env = "BLANKS" } }': "launch.on_ended.url: from_env: expected an http:// or https://",
    'on_ended = { url = "https://h", secret = { from_env = "LINES" } }': (
        "launch.on_ended.secret: from_env: expected one non-empty line of text"
    ),
    'onstart_file = "no.sh"': "launch.onstart_file: expected a script; {home}/no.sh cannot be read: No such file",
    'onstart_file = "~nobody-here/no.sh"': "launch.onstart_file: expected a script; {home}/~nobody-here/no.sh cannot",
    'onstart_file = "long.sh"': "launch.onstart_file: expected a script of at most 4000 characters",
    'onstart_file = "empty.sh"': "launch.onstart_file: expected a script; {home}/empty.sh is empty",
    'onstart_file = "long.sh"\nonstart = "x"': "launch.onstart_file: expected either onstart or onstart_file, not both",
    'ssh_key = "id"': "launch.ssh_key: expected a readable file; cannot read {home}/id",
    'ssh_key = "."': "launch.ssh_key: expected a readable file; cannot read {home}",
}


@pytest.mark.parametrize("key", MISSING)
def test_what_is_missing_is_a_fault_with_file_line_and_key(faults: Any, home: Path, key: str) -> None:
    (home / "long.sh").write_text("x" * 4001)
    (home / "empty.sh").write_text("\n")
    (fault,) = faults(WATCH + key + "\n", env={"EMPTY": "", "BLANKS": "a b", "LINES": "a\nb"})
    assert fault.startswith(f'{home}/gpuwatch.toml:6: watch "one": {MISSING[key].format(home=home)}')


def test_all_that_is_missing_is_reported_at_once_with_other_faults(faults: Any) -> None:
    toml = WATCH + 'env = { A = { from_env = "NO_A" }, B = { from_env = "NO_B" } }\nmax_tries = 0\n'
    found = faults(toml)
    assert [one.rpartition("launch.")[2].partition(":")[0] for one in found] == ["env.A", "env.B", "max_tries"]


@pytest.mark.parametrize("kind", ["from_env", "from_file"])
@pytest.mark.parametrize("secret", ["hf_AbCdEf0123456789", "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c"])
def test_a_secret_in_place_of_its_name_is_not_quoted(faults: Any, kind: str, secret: str) -> None:
    (fault,) = faults(WATCH + f'env = {{ A = {{ {kind} = "{secret}" }} }}\n')
    assert f"launch.env.A: {kind}: expected " in fault
    assert secret not in fault


# --- loaded again


@pytest.fixture
def loaded_before(files: Path) -> dict[str, str]:
    """The environment with which `ALL` was loaded."""
    (files / "gpuwatch.toml").write_text(ALL)
    load(env=ENV, cwd=files)
    return dict(ENV)


def test_what_changed_behind_a_reference_is_read_anew(files: Path, loaded_before: dict[str, str]) -> None:
    (files / "hf").write_text("other")
    (files / "train.sh").write_text("c")
    launch = the_launch(load(env={**loaded_before, "MY_TOKEN": "new"}, cwd=files))
    assert launch.secret_env == {"TOKEN": Secret("new"), "FILE": Secret("other")}
    assert launch.onstart == "c"


@pytest.mark.parametrize("name", ["hf", "pw", "sign", "train.sh", "id"])
def test_what_vanished_behind_a_reference_is_a_fault(
    faults: Any, files: Path, loaded_before: dict[str, str], name: str
) -> None:
    (files / name).unlink()
    (fault,) = faults(env=loaded_before)
    assert fault.startswith(f"{files}/gpuwatch.toml:")
    assert 'watch "one": launch.' in fault


def test_a_script_that_grew_too_long_is_a_fault(faults: Any, files: Path, loaded_before: dict[str, str]) -> None:
    (files / "train.sh").write_text("x" * 4001)
    (fault,) = faults(env=loaded_before)
    assert fault.endswith(
        "launch.onstart_file: expected a script of at most 4000 characters; let it download a longer one"
    )


def test_with_self_destruct_the_script_has_less_room(faults: Any, loaded: Any, home: Path) -> None:
    toml = WATCH + 'onstart_file = "train.sh"\nself_destruct = true\nmax_runtime = "1h"\n'
    (home / "train.sh").write_text("x" * 2500)
    assert len(the_launch(loaded(toml)).onstart or "") == 2500
    (home / "train.sh").write_text("x" * 2501)
    (fault,) = faults(toml)
    assert "launch.onstart_file: expected a script of at most 2500 characters with self_destruct" in fault


def test_what_settings_allow_a_marketplace_takes() -> None:
    """The limits are in two modules that must not import each other."""
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    script = with_self_destruct("x" * MAX_ONSTART_SELF_DESTRUCT, noon + timedelta(days=3650), noon)
    assert script is not None
    assert len(script) <= ONSTART_LENGTH
    assert MAX_ONSTART <= ONSTART_LENGTH
    assert set(table_of(LaunchSpec).model_json_schema()["properties"]["runtype"]["enum"]) == set(RUNTYPES)


# --- who can see them


@pytest.mark.parametrize("name", ["hf", "pw", "sign", "id"])
def test_a_referenced_file_that_others_can_read_is_reported(
    loaded: Any, files: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (files / name).chmod(0o644)
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded(ALL, env=ENV)
    assert [record.getMessage() for record in caplog.records] == [
        f"{files / name}: every user of this machine can read its secrets; run: chmod 600 {files / name}"
    ]


@pytest.mark.parametrize(
    ("key", "reported"),
    [
        ('env = { HF_TOKEN = "x" }', True),
        ('env = { MODE = "x" }', False),
        ('env = { HF_TOKEN = { from_env = "MY_TOKEN" } }', False),
        ('registry = { server = "h", username = "u", password = "x" }', True),
        ('registry = { server = "h", username = "u", password = { from_env = "MY_TOKEN" } }', False),
        ('on_ended = { url = "https://h", secret = "x" }', True),
        ('on_ended = { url = "https://u:p@h" }', True),
        ('on_ended = { url = "https://h", secret = { from_env = "MY_TOKEN" } }', False),
        ('on_ended = "echo"', False),
    ],
)
def test_an_open_settings_file_is_reported_only_if_a_secret_stands_in_it(
    loaded: Any, home: Path, caplog: pytest.LogCaptureFixture, key: str, reported: bool
) -> None:
    (home / "gpuwatch.toml").touch()
    (home / "gpuwatch.toml").chmod(0o644)
    with caplog.at_level(logging.WARNING, "gpuwatch.settings"):
        loaded(WATCH + key + "\n", env=ENV)
    assert [("every user" in record.getMessage()) for record in caplog.records] == ([True] if reported else [])


def test_logs_and_alerts_blank_out_what_is_secret_and_leave_plain_words(loaded: Any, files: Path) -> None:
    toml = ALL.replace('MODE = "offline"', 'MODE = "offline", HF_TOKEN = "literal", LONG = "a-literal-of-20-chars"')
    found = secrets_of(loaded(toml, env=ENV))
    assert {"t-env", "t-file", "literal", "a-literal-of-20-chars", "p-file", "s-env", "s-file"} <= set(found)
    assert "https://u:p@h.example.org/y" in found
    assert "offline" not in found
