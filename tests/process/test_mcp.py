"""`gpuwatch mcp` with the protocol's own client: agents read, ask, and never spend more than they were given."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from gpuwatch.emulator import Marketplace
from gpuwatch.storage.setup.daemon_lease import claim_daemon
from tests.process.daemon_child import Home, bargain, wait_for
from tests.upgraded_store import open_upgraded

if TYPE_CHECKING:
    from mcp import Client  # loaded by the tests: it takes a second, in each worker

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("mcp") is None, reason="without the extra")]
READING = {"offers", "market", "history", "advise", "plan_job", "watches", "launches", "costs"}
ACTING = {"create_watch", "request_launch", "stop", "rent"}


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=7, key="demo-key", size=20) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        yield opened


@asynccontextmanager
async def agent(home: Home) -> AsyncIterator[Client]:
    """An agent that talks to a server of its own."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "gpuwatch", "mcp"], env=home.env, cwd=home.folder
    )
    async with Client(stdio_client(parameters)) as client:
        yield client


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    """Its answer; an error is its text."""
    result = await client.call_tool(tool, arguments)
    return result.content[0].text if result.is_error else result.structured_content


def one(home: Home, tool: str, **arguments: Any) -> Any:
    async def call() -> Any:
        async with agent(home) as client:
            return await ask(client, tool, **arguments)

    return anyio.run(call)


def an_asking_home(tmp_path: Path, market: Marketplace, usd_day: float = 0, **wanted: Any) -> Home:
    return Home(tmp_path, market.url, action="ask", extra=f"[mcp]\nmax_usd_day = {usd_day}\n", **wanted)


def test_an_agent_reads_everything_and_a_fault_is_an_answer(tmp_path: Path, market: Marketplace) -> None:
    home = an_asking_home(tmp_path, market)
    assert home.run("store", "import", "--recorded").returncode == 0

    async def session() -> dict[str, Any]:
        async with agent(home) as client:
            tools = await client.list_tools()
            assert {tool.name for tool in tools.tools} == READING | ACTING
            answers = {name: await ask(client, name) for name in ("market", "watches", "launches", "costs")}
            answers["history"] = await ask(client, "history", gpu="H100", days=10)
            answers["advise"] = await ask(client, "advise", gpu="H100", job_hours=24)
            answers["plan_job"] = await ask(client, "plan_job", size_of="8B")
            answers["offers"] = await ask(client, "offers", gpu="H100")
            answers["no gpu"] = await ask(client, "offers", gpu="Nonsense")
            answers["no launch"] = await ask(client, "stop", launch_id="nothing", why="a test")
            return answers

    found = anyio.run(session)
    assert {row["gpu"] for row in found["market"]["gpus"]} > {"H100 SXM", "A100 SXM 80GB"}
    assert [row["name"] for row in found["watches"]["watches"]] == ["cheap"]
    assert len(found["history"]["points"]) >= 9
    assert found["advise"]["gpu"] == "H100"
    assert found["plan_job"]["method"]
    assert found["launches"] == {"launches": []}
    assert "no GPU is called 'Nonsense'" in found["no gpu"]
    assert "there is no launch 'nothing'" in found["no launch"]


def test_without_an_envelope_the_owner_approves_and_reads_why(tmp_path: Path, market: Marketplace) -> None:
    home = an_asking_home(tmp_path, market)
    offer = bargain(market)
    asked = one(home, "request_launch", watch="cheap", why="the run\x1b[31m needs <b>one</b>")
    assert asked["awaits_owner"] is True
    assert asked["answer"] is None
    assert asked["approval"]["offer"]["offer_id"] == str(offer)
    assert len(market.ledger.creates) == 0
    listed = home.run("alerts", "--json")
    assert "An agent asks for it (gpuwatch mcp): the run" in listed.stdout
    assert "\\u001b" not in listed.stdout
    again = one(home, "request_launch", watch="cheap", why="again")
    assert again["approval"]["ask_id"] == asked["approval"]["ask_id"]
    approved = home.run("approvals", "approve", asked["approval"]["ask_id"])
    assert approved.returncode == 0, approved.stderr
    assert len(market.ledger.creates) == 1


def test_parallel_agents_never_spend_more_than_they_were_given(tmp_path: Path, market: Marketplace) -> None:
    """Each launch can cost about 2 $, so that two fit into 5 $: of eight requests at once, six await the owner."""
    home = an_asking_home(tmp_path, market, usd_day=5.0, max_active=8, max_total=8)
    offers = [bargain(market) for _ in range(8)]

    async def session() -> list[Any]:
        answers: list[Any] = []

        async def request(client: Client, offer: int) -> None:
            answers.append(await ask(client, "request_launch", watch="cheap", offer_id=str(offer), why="train"))

        async with agent(home) as one_agent, agent(home) as other, anyio.create_task_group() as group:
            for number, offer in enumerate(offers):
                group.start_soon(request, (one_agent, other)[number % 2], offer)
        return answers

    with claim_daemon(home.database_url):
        answers = anyio.run(session)
    assert all(isinstance(answer, dict) for answer in answers), answers
    assert sum(not answer["awaits_owner"] for answer in answers) == 2
    assert len(market.ledger.creates) == 2
    refused = [answer["text"] for answer in answers if answer["awaits_owner"]]
    assert len(refused) == 6
    assert all("max_usd_day" in text for text in refused), refused
    with closing(open_upgraded(home.database_url)) as store, store.read() as connection:
        spent = connection.exec_driver_sql("SELECT SUM(agent_microusd) FROM approval").scalar()
    assert 0 < spent <= 5_000_000
    open_ones = home.run("approvals", "--json").stdout
    assert open_ones.count('"open"') == 6


def test_an_agent_ends_its_own_launch_and_asks_about_another(tmp_path: Path, market: Marketplace) -> None:
    home = an_asking_home(tmp_path, market, usd_day=5.0, max_active=2, max_total=2)
    bargain(market)
    with claim_daemon(home.database_url):
        own = one(home, "request_launch", watch="cheap", why="train")
    launch_id = own["answer"]["launch_id"]
    home.write(url=market.url, action="ask", max_active=2, max_total=2)  # no envelope any more
    bargain(market)
    of_owner = one(home, "request_launch", watch="cheap", why="another")["approval"]["ask_id"]
    assert home.run("approvals", "approve", of_owner).returncode == 0
    reported = one(home, "stop", launch_id=of_owner, why="it is idle")
    assert (reported["ending"], reported["launch"]["state"] in {"ordered", "starting", "running"}) == (False, True)
    assert "an agent asks to end it" in home.run("alerts", "--json").stdout
    ended = one(home, "stop", launch_id=launch_id, why="done")
    assert ended["ending"] is True
    audit = home.run("alerts", "--kind", "audit", "--json").stdout
    assert "agent (gpuwatch mcp): train" in audit
    assert "agent (gpuwatch mcp): done" in audit
    with home.daemon():
        states = wait_for(lambda: sorted(home.states()) == ["ended", "running"])
        assert states


def test_a_watch_of_an_agent_never_rents(tmp_path: Path, market: Marketplace) -> None:
    home = an_asking_home(tmp_path, market)
    added = one(home, "create_watch", name="agents", gpu="RTX 4090", max_price=0.3, why="small tests")
    assert added["watch"] == "agent-agents"
    asking = one(home, "create_watch", name="agents-ask", gpu="RTX 4090", max_price=0.3, why="x", asks=True)
    assert 'action = "ask"' in asking["diff"]
    assert "agent-agents" in one(home, "create_watch", name="agents", gpu="RTX 4090", max_price=0.3, why="twice")
    shown = home.run("watches", "--json").stdout
    assert '"launch"' not in [line.strip() for line in shown.splitlines() if '"action"' in line]
    text = (tmp_path / "gpuwatch.toml").read_text()
    assert text.count("[[watch]]") == 3
    assert "agent (gpuwatch mcp)" in home.run("alerts", "--kind", "audit", "--json").stdout
