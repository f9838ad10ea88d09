"""A signal ends the wait at once, even before the main thread can see it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The interpreter runs handlers only in the main thread; a signal in another thread does not interrupt it.
CODE = """
import signal, threading, time
from gpuwatch.daemon.service_manager import SignalHandler

signals = SignalHandler()

def send():
    time.sleep(0.3)
    signal.pthread_kill(threading.get_ident(), signal.{name})

threading.Thread(target=send).start()
signals.wait(3600.0)
print(signals.stop, signals.reload)
"""


@pytest.mark.parametrize(
    ("name", "printed"), [("SIGTERM", "True False"), ("SIGINT", "True False"), ("SIGHUP", "False True")]
)
def test_a_signal_that_another_thread_got_wakes_the_main_one(name: str, printed: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", CODE.format(name=name)], capture_output=True, text=True, timeout=240, check=True
    )
    assert ended.stdout.strip() == printed
