"""`gpuwatch demo --web`: after the demo the daemon continues, with a page that can approve."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import loopback_client
from tests.process.daemon_child import ROOT, wait_for


@pytest.mark.slow
def test_the_demo_stays_with_a_page_until_it_is_interrupted(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    log = tmp_path / "out.txt"
    with log.open("w") as out:
        command = [sys.executable, "-m", "gpuwatch", "demo", "--web"]
        child = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=out, stderr=out)
        try:
            found = wait_for(lambda: re.search(r"web page: (http://\S+)", log.read_text()))
            url = found[1].rstrip("/")
            assert loopback_client.get(f"{url}/healthz").status_code == 200
            asked = wait_for(lambda: loopback_client.items(url, "approvals"))
            assert asked[0]["watch"] == "a100-ask"
            code = re.search(r"one-time code: (\S+)", log.read_text())
            assert code is not None
            client = loopback_client.client(base_url=url)
            token = client.post("/api/v1/session", json={"code": code[1]}).json()["csrf_token"]
            answer = client.post(f"/api/v1/approvals/{asked[0]['ask_id']}/approve", headers={"X-CSRF-Token": token})
            assert answer.status_code == 200, answer.text
            client.close()
            child.send_signal(signal.SIGINT)
            assert child.wait(240) == 0
        finally:
            child.kill()
            child.wait()
    assert "Traceback" not in log.read_text()
