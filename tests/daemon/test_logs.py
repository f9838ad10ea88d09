"""What is logged and where; never a secret, a forged line, or a megabyte."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.daemon import logs
from gpuwatch.daemon.logs import JournalHandler
from gpuwatch.redaction import redact, register_secret

SECRET = "hunter2-hunter2"
Written = Callable[[logging.LogRecord], str]


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_known_secret() -> None:
    register_secret(SECRET)


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, restored after the test."""
    logger = logging.getLogger()
    handlers, level, hook = list(logger.handlers), logger.level, threading.excepthook
    names = ("alembic", "apscheduler", "apscheduler.scheduler", "httpcore", "httpx")
    chatty = {name: logging.getLogger(name).level for name in names}
    for name in names:  # another test may have run a daemon in this process, which sets some of them
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.captureWarnings(False)  # likewise: a second call would do nothing
    yield logger
    for own in [handler for handler in logger.handlers if handler not in handlers]:
        own.close()
    logger.handlers[:] = handlers
    logger.setLevel(level)
    for name, was in chatty.items():
        logging.getLogger(name).setLevel(was)
    logging.captureWarnings(False)
    threading.excepthook = hook


def _record(
    message: object = "watching", *args: object, level: int = logging.INFO, **extra: object
) -> logging.LogRecord:
    record = logging.LogRecord("gpuwatch.daemon.process", level, __file__, 1, message, args, None)
    record.created = 1_795_235_760.5
    record.__dict__.update(extra)
    return record


def _failing(error: Exception) -> logging.LogRecord:
    record = _record("beat hunt failed", level=logging.ERROR)
    try:
        _raise(error)
    except type(error):
        record.exc_info = sys.exc_info()
    return record


def _raise(error: Exception) -> None:
    raise error


def _as(style: str) -> Written:
    def written(record: logging.LogRecord) -> str:
        stream = io.StringIO()
        logs.build_handler(style, stream, {}, redact).handle(record)
        return stream.getvalue()

    return written


def _datagram(record: logging.LogRecord) -> dict[str, str]:
    """The messages that the journal received, parsed by the test."""
    address = f"\0gpuwatch-journal-{os.getpid()}-{id(record)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(address)
        journal.settimeout(2)
        handler = JournalHandler(address, io.StringIO(), redact)
        handler.handle(record)
        handler.close()
        return _fields(journal.recv(1 << 20))


def _fields(data: bytes) -> dict[str, str]:
    found = {}
    while data:
        head, _, data = data.partition(b"\n")
        name, equals, value = head.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", data)
            value, data = data[8 : 8 + length], data[9 + length :]
        found[name.decode()] = value.decode()
    return found


text, as_json = _as("text"), _as("json")


# --- format -----------------------------------------------------------------------------------------------------------


def test_a_line_for_people() -> None:
    assert text(_record(watches=3, reason="too dear")) == (
        '2026-11-21T04:36:00.500Z info     watching  reason="too dear"  watches=3\n'
    )


def test_a_line_for_machines() -> None:
    assert json.loads(as_json(_record("%d watches", 3, providers=["vastai"], commission=0.2))) == {
        "at": "2026-11-21T04:36:00.500Z",
        "level": "info",
        "logger": "gpuwatch.daemon.process",
        "message": "3 watches",
        "providers": ["vastai"],
        "commission": 0.2,
    }


def test_a_record_in_the_journal() -> None:
    assert _datagram(_record("slow", level=logging.WARNING, provider="vastai", elapsed_ms=412)) == {
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "gpuwatch",
        "LOGGER": "gpuwatch.daemon.process",
        "MESSAGE": "slow",
        "PROVIDER": "vastai",
        "ELAPSED_MS": "412",
    }


def test_the_journal_takes_a_traceback_as_one_field() -> None:
    message = _datagram(_failing(RuntimeError("boom")))["MESSAGE"]
    assert message.startswith("beat hunt failed\n    Traceback")
    assert message.endswith("\n    RuntimeError: boom")


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.DEBUG, "7"), (logging.INFO, "6"), (logging.WARNING, "4"), (logging.ERROR, "3"), (logging.CRITICAL, "2")],
)
def test_the_journal_knows_how_grave_it_is(level: int, priority: str) -> None:
    assert _datagram(_record(level=level))["PRIORITY"] == priority


def test_an_extra_cannot_replace_the_journals_own_fields() -> None:
    fields = _datagram(_record(priority="0", **{"_uid": "0", "0": "zero", "x-y": "z"}))
    assert fields["PRIORITY"] == "6"
    assert (fields["EXTRA_PRIORITY"], fields["UID"], fields["EXTRA"], fields["X_Y"]) == ("0", "0", "zero", "z")


def test_an_extra_cannot_replace_the_objects_own_keys() -> None:
    said = json.loads(as_json(_record(level_="x", logger="forged")))
    assert (said["logger"], said["logger_"]) == ("gpuwatch.daemon.process", "forged")


def test_a_journal_that_is_gone_leaves_the_message_on_standard_error() -> None:
    stream = io.StringIO()
    handler = JournalHandler("/nowhere/journal", stream, redact)
    handler.handle(_record("still heard", level=logging.WARNING))
    handler.close()
    assert stream.getvalue() == "<4>still heard\n"


# --- destination ------------------------------------------------------------------------------------------------------


def _chosen(stream: io.StringIO | io.TextIOWrapper, env: dict[str, str]) -> logging.Handler:
    handler = logs.build_handler("auto", stream, env, redact)
    handler.close()
    return handler


def test_a_terminal_gets_text_and_a_pipe_gets_json(tmp_path: Path) -> None:
    terminal = Terminal()
    logs.build_handler("auto", terminal, {}, redact).handle(_record())
    assert "info     watching" in terminal.getvalue()
    pipe = io.StringIO()
    logs.build_handler("auto", pipe, {}, redact).handle(_record())
    assert json.loads(pipe.getvalue())["message"] == "watching"


def test_the_journal_is_used_only_when_standard_error_leads_to_it(tmp_path: Path) -> None:
    with open(tmp_path / "stderr", "w") as stream:
        found = os.fstat(stream.fileno())
        there = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        elsewhere = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}
        assert isinstance(_chosen(stream, there), JournalHandler)
        assert not isinstance(_chosen(stream, elsewhere), JournalHandler)
        assert not isinstance(_chosen(stream, {}), JournalHandler)


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown log style 'xml'"):
        logs.build_handler("xml", io.StringIO(), {}, redact)


def test_standard_output_stays_free() -> None:
    """In a process of its own: everything that logs goes to standard error."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=240, check=False, env={**os.environ}
    )
    assert done.stdout == ""
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["message"].split(":")[0] for line in said] == ["logged", "thread worker died", "<string>"]
    assert said[1]["exception"].endswith("ValueError: ***")
    assert SECRET not in done.stderr


_PROGRAM = f"""
import logging, threading, warnings
from gpuwatch.redaction import redact, register_secret
from gpuwatch.daemon import logs
register_secret({SECRET!r})
logs.configure("json", redact=redact)
logging.getLogger("gpuwatch").info("logged")
logging.getLogger("gpuwatch").debug("left out")
logging.getLogger("apscheduler.scheduler").info("Added job")
logging.getLogger("httpx").info("HTTP Request: GET https://host/?api_key={SECRET}")
def die():
    raise ValueError({SECRET!r})
worker = threading.Thread(target=die, name="worker")
worker.start()
worker.join()
warnings.warn({SECRET!r})
"""


def test_a_second_call_replaces_the_first(root: logging.Logger) -> None:
    logs.configure("json", redact=redact)
    logs.configure("text", level=logging.DEBUG, redact=redact)
    assert len(root.handlers) == 1
    assert root.level == logging.DEBUG


def test_apschedulers_chatter_is_silent_and_its_warnings_are_not(root: logging.Logger) -> None:
    logs.configure("json", level=logging.DEBUG, redact=redact)
    chatter = logging.getLogger("apscheduler.scheduler")
    assert not chatter.isEnabledFor(logging.INFO)
    assert chatter.isEnabledFor(logging.WARNING)


def test_pythons_warnings_pass_the_redaction(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", redact=redact)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn(f"unclosed {SECRET}", ResourceWarning, stacklevel=1)
    assert "unclosed ***" in capsys.readouterr().err


def test_a_closed_stream_is_no_fault() -> None:
    stream = io.StringIO()
    handler = logs.build_handler("json", stream, {}, redact)
    stream.close()
    handler.handle(_record())


# --- secrets ----------------------------------------------------------------------------------------------------------

everywhere = pytest.mark.parametrize(
    "written", [text, as_json, lambda record: str(_datagram(record))], ids=["text", "json", "journal"]
)


@everywhere
def test_no_secret_in_a_message(written: Written) -> None:
    assert SECRET not in written(_record("GET /?q=%s", SECRET))


@everywhere
def test_no_secret_in_an_extra(written: Written) -> None:
    record = _record(url=f"https://x/{SECRET}", nested={"deep": [SECRET, {"deeper": (SECRET,)}]}, error=OSError(SECRET))
    assert SECRET not in written(record)


@everywhere
def test_no_secret_in_a_traceback(written: Written) -> None:
    outer = RuntimeError("outer")
    outer.__cause__ = OSError(f"connect {SECRET}")
    assert SECRET not in written(_failing(outer))


@everywhere
def test_an_extra_whose_name_says_secret_is_blanked_whatever_it_holds(written: Written) -> None:
    assert "abc def" not in written(_record(api_key="abc def", settings={"bot_token": ["abc def"]}))


@everywhere
def test_a_secret_is_blanked_before_the_text_is_cut(written: Written) -> None:
    """If it were truncated first, half a secret would remain and not be recognised."""
    said = written(_record("x" * (8_000 - 9) + SECRET))
    assert SECRET[:5] not in said


@pytest.mark.parametrize("hostile", ["\r\n", "\x1b[2J", "\x00", "\x85", "\u2028", "\u202e", "\ud800"])
def test_no_text_of_others_ends_a_line_or_moves_the_cursor(hostile: str) -> None:
    for written in (text, as_json):
        said = written(_record(f"host said {hostile}end", note=f"a{hostile}b"))
        assert said.count("\n") == 1
        assert hostile not in said
        assert said.isprintable() or said[:-1].isprintable()


def test_an_errors_text_cannot_forge_a_line() -> None:
    said = text(_failing(RuntimeError("bad\n2026-11-21T04:36:00.500Z info     all is well\x1b[2J")))
    assert all(line.startswith("    ") for line in said.splitlines()[1:])
    assert "\x1b" not in said


def test_a_megabyte_is_cut() -> None:
    assert len(as_json(_record("x" * 1_000_000, note="y" * 1_000_000, many=list(range(100_000))))) < 12_000
    assert len(text(_failing(RuntimeError("z" * 1_000_000)))) < 30_000


def test_numbers_that_json_does_not_know_are_said_in_words() -> None:
    assert json.loads(as_json(_record(price=float("nan"), prices=[float("inf")])))["prices"] == ["inf"]


def test_a_slip_in_a_log_call_costs_neither_the_line_nor_the_task() -> None:
    assert "%d watches (arguments do not match)" in text(_record("%d watches", "three"))


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError(SECRET)


def test_a_value_that_cannot_be_said_is_named_by_its_kind() -> None:
    assert json.loads(as_json(_record(thing=Unspeakable())))["thing"] == "<Unspeakable>"
