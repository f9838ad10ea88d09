"""A hook as it is really carried out: a shell, and the receiver in docs/hooks.md."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.watches.launch_spec import HookSpec
from gpuwatch.hooks.owner_hooks import HookRunner
from gpuwatch.ports.hooks import HookCall
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.secret import Secret
from tests.checkout import ROOT

DOCUMENT = ROOT / "docs" / "hooks.md"
BODY = '{"event":"on_ended","launch_id":"abcdefghijkl","watch":"h100","state":"ended","instance_id":null}'


@pytest.fixture
def runner() -> Iterator[HookRunner]:
    http = PooledHttpClient()
    yield HookRunner(http, threading.Event())
    http.close()


@pytest.fixture
def receiver() -> Iterator[str]:
    """Serve the example of the document."""
    (source,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(source, str(DOCUMENT), "exec"), names)
    names["Receiver"].log_message = lambda *_: None
    server = ThreadingHTTPServer(("127.0.0.1", 0), names["Receiver"])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    thread.join()
    server.server_close()


def call(spec: HookSpec, at: datetime | None = None, timeout_s: float = 20.0, body: str = BODY) -> HookCall:
    return HookCall(spec=spec, event="on_ended", body=body, at=at or real_now(), timeout_s=timeout_s)


def test_a_command_that_goes_well_says_nothing(runner: HookRunner, tmp_path: Path) -> None:
    spec = HookSpec(command=f'echo "$GPUWATCH_EVENT $GPUWATCH_LAUNCH_ID" > {tmp_path}/got; cat >> {tmp_path}/got')
    assert runner(call(spec)) is None
    assert (tmp_path / "got").read_text() == f"on_ended abcdefghijkl\n{BODY}"


def test_a_command_that_fails_is_reported_with_its_code_and_last_line(runner: HookRunner) -> None:
    assert runner(call(HookSpec(command="echo no space; exit 7"))) == "exited with code 7: no space"
    assert runner(call(HookSpec(command="exit 7"))) == "exited with code 7"


def test_a_command_that_hangs_is_ended(runner: HookRunner) -> None:
    spec = HookSpec(command="echo waiting; sleep 300")
    for timeout_s in (0.5, 5.0, 50.0):  # on a busy machine half a second may not be enough
        said = runner(call(spec, timeout_s=timeout_s))
        assert said in (f"timed out after {timeout_s:g} s: waiting", f"timed out after {timeout_s:g} s")
        if said.endswith("waiting"):
            return
    pytest.fail("it never came to its first line")


def test_the_documented_receiver_takes_what_is_signed_rightly(
    runner: HookRunner, receiver: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner(call(HookSpec(url=Secret(receiver), secret=Secret("a long shared secret")))) is None
    assert capsys.readouterr().out == "on_ended abcdefghijkl ended\n"


@pytest.mark.parametrize("secret", ["another secret", None])
def test_the_documented_receiver_refuses_a_wrong_and_a_missing_signature(
    runner: HookRunner, receiver: str, secret: str | None
) -> None:
    assert "403" in (runner(call(HookSpec(url=Secret(receiver), secret=Secret(secret) if secret else None))) or "")


def test_the_documented_receiver_refuses_what_is_old(runner: HookRunner, receiver: str) -> None:
    old = real_now() - timedelta(minutes=10)
    assert "403" in (runner(call(HookSpec(url=Secret(receiver), secret=Secret("a long shared secret")), at=old)) or "")
