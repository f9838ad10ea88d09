"""What jobs on several machines do at a real dstack server. Each scenario raises, or says in one line what it saw."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.clusters.servers import Dstack, Gpuwatch, wait_for

JOB = """
image = "x/y:1"
command = {command}
nodes = 2
env = {{ MODE = "fast", HF_TOKEN = {{ from_env = "HF" }} }}
resources = {{ gpu = "H100", gpu_count = 8, providers = ["aws"]{resources} }}
limit = {{ max_price = {max_price} }}
max_runtime = "{max_runtime}"
{more}
"""
ECHO = 'echo "rank $DSTACK_NODE_RANK of $DSTACK_NODES_NUM at $DSTACK_MASTER_NODE_IP, $MODE, ${#HF_TOKEN}"'


@dataclass
class Facts:
    """Both programs."""

    own: Gpuwatch
    dstack: Dstack

    def submit(self, name: str, command: str, max_price: float = 2.5, **changed: str) -> None:
        """Submit a job of two machines."""
        plain = {"max_runtime": "2h", "more": "", "resources": ""} | changed
        text = JOB.format(command=json.dumps(command), max_price=max_price, **plain)
        (self.own.folder / f"{name}.toml").write_text(text)
        ran = self.own.said("jobs", "submit", f"{name}.toml")
        assert ran.returncode == 0, ran.stderr

    def gate(self, name: str) -> str:
        """Return a command that waits until `open`."""
        return f"while [ ! -e {self.own.folder}/{name}.open ]; do sleep 1; done"

    def open(self, name: str) -> None:
        """Let the waiting command of a job end."""
        (self.own.folder / f"{name}.open").touch()

    def job(self, name: str) -> Any:
        return self.own.asked("jobs", "show", name)

    def until(self, name: str, state: str) -> Any:
        """Return the job once it is in a state, or raise with the state that it is in."""
        found: dict[str, Any] = {}

        def look() -> bool:
            found.update(self.job(name) or {})
            return found.get("state") == state

        try:
            wait_for(look, f"{name} is {state}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; it is {found.get('state')}: {found.get('reason')}") from None
        return found

    def launch(self, name: str) -> Any:
        """Return the newest launch of a job."""
        found = self.job(name)["launch_id"]
        return next(one for one in self.own.asked("launches") if one["launch_id"] == found)

    def run(self, name: str) -> Any:
        """Return dstack's own record of the newest run of a job."""
        said = self.dstack.said("run", "get", self.launch(name)["label"], "--json")
        assert said.returncode == 0, said.stdout
        return json.loads(said.stdout)


def without_a_fleet(facts: Facts) -> str:
    facts.submit("lonely", ECHO)
    try:
        found = wait_for(lambda: (one := facts.job("lonely")) and "fleet" in (one["reason"] or "") and one, "a reason")
    finally:
        facts.dstack.add_fleet()
    facts.until("lonely", "done")
    return str(found["reason"])


def done(facts: Facts) -> str:
    facts.submit("train", f"{ECHO}; {facts.gate('train')}")
    facts.until("train", "running")
    priced = wait_for(lambda: (one := facts.launch("train"))["price_usd_hour"] == 38.0 and one, "two machines at $19")
    facts.open("train")
    found = facts.until("train", "done")
    run = facts.run("train")
    machines = facts.dstack.machines(priced["label"])
    assert [one["rank"] for one in machines] == [0, 1], machines
    wait_for(lambda: all(one["is_gone"] for one in facts.dstack.machines(priced["label"])), "both machines are gone")
    assert found["exit_code"] == 0, found
    assert abs(found["spent_usd"] - run["cost"]) < 0.0001, (found["spent_usd"], run["cost"])
    sent = json.loads((machines[1]["folder"] / "submitted.json").read_text())
    assert sent["job_spec"]["env"]["HF_TOKEN"] == "a-secret-text"
    log = facts.dstack.said("logs", priced["label"]).stdout
    assert f"rank 0 of 2 at {machines[0]['address']}, fast, 13" in log, log
    assert f"dstack logs {priced['label']}" in facts.own.said("jobs", "logs", "train").stderr
    return f"exit 0, ${found['spent_usd']:.4f} as dstack states, ranks 0 and 1, both machines ended"


def command_fails(facts: Facts) -> str:
    facts.submit("broken", 'test "$DSTACK_NODE_RANK" = 0 && sleep 600; exit 3', more="retries = 1")
    found = facts.until("broken", "failed")
    assert (found["exit_code"], len(found["runs"])) == (3, 1), found
    return str(found["reason"])


def setup_ends_in_a_comment(facts: Facts) -> str:
    more = "setup = '''\ncat <<END\nset up\nEND\ntrue # tools'''"
    facts.submit("commented", "echo trained; exit 5", more=more)
    found = facts.until("commented", "failed")
    assert found["exit_code"] == 5, found
    log = facts.dstack.said("logs", facts.launch("commented")["label"]).stdout
    assert "set up" in log, log
    return "set-up, then the command: exit 5"


def cancelled(facts: Facts) -> str:
    facts.submit("unwanted", "sleep 900")
    facts.until("unwanted", "running")
    label = facts.launch("unwanted")["label"]
    assert facts.own.said("jobs", "cancel", "unwanted").returncode in {0, 3}  # 3: not confirmed within its patience
    wait_for(lambda: facts.launch("unwanted")["state"] == "ended", "its launch is ended")
    assert facts.job("unwanted")["state"] == "cancelled"
    wait_for(lambda: all(one["is_gone"] for one in facts.dstack.machines(label)), "both machines are gone")
    return "dstack stopped the run and ended both machines"


def too_cheap_a_cap(facts: Facts) -> str:
    facts.submit("poor", ECHO, max_price=2.0)
    found = wait_for(
        lambda: (one := facts.job("poor")) and one["reason"] and "no_capacity" in one["reason"] and one, "a reason"
    )
    assert (found["state"], found["spent_usd"]) == ("queued", 0.0), found
    assert facts.own.said("jobs", "cancel", "poor").returncode == 0
    return str(found["reason"])


def beyond_the_budget(facts: Facts) -> str:
    facts.submit("rich", ECHO, max_price=26.0)
    found = wait_for(lambda: (one := facts.job("rich")) and "max_usd_hour" in (one["reason"] or "") and one, "a reason")
    assert facts.own.said("jobs", "cancel", "rich").returncode == 0
    return str(found["reason"])


def spot_taken_back(facts: Facts) -> str:
    facts.submit("spotty", facts.gate("spotty"), resources=', spot = "only"', more="retries = 1")
    facts.until("spotty", "running")
    first = facts.launch("spotty")
    facts.dstack.lose(facts.dstack.machines(first["label"])[1])
    wait_for(lambda: facts.launch("spotty")["label"] != first["label"], "again")
    facts.open("spotty")
    found = facts.until("spotty", "done")
    assert [one["run_number"] for one in found["runs"]] == [1, 2], found["runs"]
    assert first["price_usd_hour"] == 16.0, first
    return f"run 1: {found['runs'][0]['end_reason']}; run 2: done"


def over_by_itself_while_gpuwatch_is_away(facts: Facts) -> str:
    facts.submit("endless", "sleep 900", max_runtime="60s", more="retries = 1")
    facts.until("endless", "running")
    facts.own.kill()
    label = facts.launch("endless")["label"]
    wait_for(lambda: all(one["is_gone"] for one in facts.dstack.machines(label)), "dstack ends it by max_duration")
    facts.own.start()
    found = facts.until("endless", "failed")
    assert len(found["runs"]) == 1, found["runs"]
    return str(found["reason"])


def max_runtime(facts: Facts) -> str:
    facts.submit("long", "sleep 900", more='deadline = "90s"')
    found = facts.until("long", "failed")
    assert "max_runtime" in found["reason"], found["reason"]
    return str(found["reason"])


def both_restarted(facts: Facts) -> str:
    facts.submit("patient", facts.gate("patient"))
    facts.until("patient", "running")
    label = facts.launch("patient")["label"]
    facts.own.kill()
    facts.dstack.kill()
    facts.own.start()
    facts.dstack.start()
    facts.open("patient")
    found = facts.until("patient", "done")
    assert (found["exit_code"], len(found["runs"])) == (0, 1), found
    assert len(facts.dstack.machines(label)) == 2
    return "one run, two machines, exit 0"


Scenario = Callable[[Facts], str]
SCENARIOS: Final[dict[str, Scenario]] = {
    "a project without a fleet": without_a_fleet,
    "two machines, done": done,
    "a command that fails on one machine": command_fails,
    "a set-up that ends in a comment": setup_ends_in_a_comment,
    "a job that is cancelled": cancelled,
    "a price cap below every offer": too_cheap_a_cap,
    "a budget below the price cap": beyond_the_budget,
    "a spot machine that is taken back": spot_taken_back,
    "a deadline": max_runtime,
    "an end while gpuwatch is not running": over_by_itself_while_gpuwatch_is_away,
    "gpuwatch and dstack killed in the middle": both_restarted,
}
ALONE: Final = frozenset({without_a_fleet, over_by_itself_while_gpuwatch_is_away, both_restarted})
