"""A machine of the local cloud: the agent that dstack's server speaks to, which runs the commands as local processes.

Source: dstack 0.22.5, `runner/internal/runner` (HTTP API and executor): submit, run, pull, stop; the variables of a
node; exit status, `max_duration` and its reason; SIGINT and ten seconds later SIGKILL at a stop. Left out: containers,
users, repositories, SSH between nodes.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

VERSION = "0.22.5"
KILL_AFTER_S = 10.0


class Agent:
    """One job, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: dict[str, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._last = 0
        self._states: list[dict[str, Any]] = []
        self._logs: list[dict[str, Any]] = []
        self._is_stopped = False

    def now(self) -> int:
        """Milliseconds, each later than the one before."""
        with self._lock:
            self._last = max(self._last + 1, round(time.time() * 1000))
            return self._last

    def run(self) -> dict[str, str]:
        """Start the submitted job."""
        threading.Thread(target=self._run, daemon=True).start()
        return {"working_dir": str(self.folder), "username": "root"}

    def pull(self, since: int) -> dict[str, Any]:
        """Return what happened after a time."""
        newer = [[one for one in kept if one["timestamp"] > since] for kept in (self._states, self._logs)]
        last = max((one["timestamp"] for kept in newer for one in kept), default=since)
        return {
            "job_states": newer[0],
            "job_logs": newer[1],
            "runner_logs": [],
            "last_updated": last,
            "has_more": False,
        }

    def stop(self) -> None:
        """Interrupt the job, and kill it if it goes on."""
        self._is_stopped = True
        self._interrupt()

    def _interrupt(self) -> None:
        process = self.process
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(KILL_AFTER_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)

    def _run(self) -> None:
        spec, cluster = self.job["job_spec"], self.job["cluster_info"]
        (self.folder / "submitted.json").write_text(json.dumps(self.job))
        self._state("running")
        node = {
            "DSTACK_RUN_NAME": self.job["run"]["run_spec"]["run_name"],
            "DSTACK_NODES_IPS": "\n".join(cluster["job_ips"]),
            "DSTACK_MASTER_NODE_IP": cluster["master_job_ip"],
            "DSTACK_NODE_RANK": str(spec["job_num"]),
            "DSTACK_NODES_NUM": str(spec["jobs_per_replica"]),
            "DSTACK_GPUS_PER_NODE": str(cluster["gpus_per_job"]),
            "DSTACK_GPUS_NUM": str(sum(cluster["gpus_per_node"])),
        }
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder)} | node | spec["env"]
        self.process = subprocess.Popen(
            spec["commands"], cwd=self.folder, env=env, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        reader.start()
        try:
            code = self.process.wait(spec.get("max_duration") or None)
        except subprocess.TimeoutExpired:
            self._interrupt()
            self._state(
                "terminated", termination_reason="max_duration_exceeded", termination_message="Max duration exceeded"
            )
            return
        reader.join(5)
        if self._is_stopped:
            self._state("terminated")
        else:
            self._state("failed" if code else "done", exit_status=max(code, -1))  # -1 after a signal, as in Go

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._logs.append({"timestamp": self.now(), "message": base64.b64encode(line).decode()})

    def _state(self, state: str, **facts: Any) -> None:
        self._states.append({"timestamp": self.now(), "state": state, **facts})


class Handler(BaseHTTPRequestHandler):
    """The part of the runner's API that the server calls."""

    agent: Agent
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/api/healthcheck":
            self._answer({"service": "dstack-runner", "version": VERSION})
        elif url.path == "/api/pull":
            self._answer(self.agent.pull(int(parse_qs(url.query).get("timestamp", ["0"])[0])))
        else:
            self._answer({"error": "not found"}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if path == "/api/submit":
            self.agent.job = json.loads(body)
            self._answer(None)
        elif path == "/api/run":
            self._answer(self.agent.run())
        elif path == "/api/stop":
            threading.Thread(target=self.agent.stop, daemon=True).start()
            self._answer(None)
        else:
            self._answer(None)

    def _answer(self, content: Any, code: int = 200) -> None:
        text = b"" if content is None else json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self) -> str:
        return "server"


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def main() -> None:
    """Serve until killed: `machine.py FOLDER`."""
    folder = Path(sys.argv[1])
    Handler.agent = Agent(folder)
    socket = folder / "agent.sock"
    os.chdir(folder)  # a socket's path is short
    with Server("agent.sock", Handler) as server:
        assert socket.exists()
        server.serve_forever()


if __name__ == "__main__":
    main()
