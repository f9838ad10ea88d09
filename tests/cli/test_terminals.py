"""Every command that prints a table, on terminals of 60 to 200 columns and in ASCII: nothing fails or is truncated."""

from __future__ import annotations

import ast
import shlex
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import gpuwatch.cli
from gpuwatch.cli.base import GroupEntry
from gpuwatch.cli.commands import SECTIONS
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Shell
from tests.cli.launches.test_asks import House
from tests.cli.launches.test_costs import Rows as Charges
from tests.cli.launches.test_launches import Rows

PRIME = "h100.csv.gz"
VAST = "tests/recorded/price-history/vastai-offers-2026-02-27_03-03.csv.gz"
LAUNCH = "abcdefghijkl"
JOB = 'command = "true"\nresources = { gpu = "H100" }\nlimit = { max_usd = 10 }\ndeadline = "2d"\n'
Facts = Callable[[Any], list[str]]


def offers(found: Any) -> list[str]:
    return [text for one in found for text in (one["offer_id"], f"{one['gpu_count']}× {one['gpu']}", usd(one))]


def usd(offer: Any) -> str:
    return f"{offer['price_usd_gpu_hour']:.3f}"


def minute(text: str) -> str:
    """Format a JSON time like the output in UTC, to the minute."""
    return text[:16].replace("T", " ")


def groups(found: Any) -> list[str]:
    return [text for one in found for text in (one["group"], f"{one['cheapest_usd_gpu_hour']:.3f}")]


def quotes(found: Any) -> list[str]:
    return [text for one in found for text in (one["ask_id"], minute(one["deadline"]), "1× H100 SXM", "2.400")]


def rented(found: Any) -> list[str]:
    return [text for one in found for text in (one["launch_id"], "1× H100 SXM", f"{one['price_usd_hour']:.3f}")]


def machines(found: Any) -> list[str]:
    return [text for one in found for text in (one["machine_id"], one["provider"])]


def gpus(found: Any) -> list[str]:
    prices = [one["price_usd_gpu_hour"] for one in found["gpus"]]
    return [*(one["gpu"] for one in found["gpus"]), *(f"{price:.4f}" for price in prices if price is not None)]


def periods(found: Any) -> list[str]:
    known = [one for one in found["points"] if one["min_price_usd_gpu_hour"] is not None]
    return [text for one in known for text in (one["starts_at"][:10], f"{one['min_price_usd_gpu_hour']:.4f}")]


def events(found: Any) -> list[str]:
    launched = [one for one in found["watches"][0]["events"] if one["did"] == "launch"][:5]
    return [text for one in launched for text in (minute(one["at"]), f"{one['price_usd_gpu_hour']:.4f}", "8× H100 SXM")]


def classes(found: Any) -> list[str]:
    return [text for one in found["choices"] for text in (one["gpu"], f"{one['price_usd_gpu_hour']:.3f}")]


COMMANDS: dict[str, Facts] = {
    "offers": offers,
    "offers --group-by gpu": groups,
    "check --gpu H100 --max-price 5 --no-store": lambda found: offers(found["watches"][0]["offers"]),
    "status": lambda found: [one["launch_id"] for one in found["launches"]] + [one["name"] for one in found["watches"]],
    "watches list": lambda found: [
        text for one in found for text in (one["name"], one["state"], f"${one['limit_usd_gpu_hour']:.3f}/GPU-h")
    ],
    "alerts": lambda found: [text for one in found for text in (minute(one["at"]), one["kind"])],
    "providers accounts": lambda found: [one["account"] or one["provider"] for one in found],
    "approvals list": quotes,
    "launches": rented,
    f"launches show {LAUNCH}": lambda found: [minute(one["at"]) for one in found],
    "launches costs --by launch --month 2026-11": lambda found: [one["launch_id"] for one in found["lines"]],
    "launches costs --by day --month 2026-11": lambda found: [one["day"] for one in found["lines"]],
    "providers machines": machines,
    "jobs list": lambda found: [
        text for one in found for text in (one["job_id"], one["name"], minute(one["deadline"]))
    ],
    "jobs series": lambda found: [
        text for one in found for text in (one["name"], one["schedule"], minute(one["next_at"]))
    ],
    "jobs plan": lambda found: [found["jobs"][0]["name"], f"{found['jobs'][0]['limit_usd_gpu_hour']:.2f}"],
    "jobs show train": lambda found: [found["job_id"], *(minute(one["at"]) for one in found["events"])],
    "providers": lambda found: [one["provider"] for one in found],
    "config show": lambda found: [one["key"] for one in found["settings"]],
    f"market --data {VAST}": gpus,
    f"history H100 --data {PRIME} --every 1d": periods,
    f"forecasts calendar 'H100 SXM' --data {PRIME}": lambda found: [one["verdict"] for one in found["effects"]],
    "forecasts trend": lambda found: [one["gpu"] for one in found["trends"]],
    "forecasts trend H100": lambda found: [one["source"] for one in found["trends"][0]["prices"]],
    f"forecasts advise H100 --count 8 --data {PRIME}": lambda found: [f"${found['now_usd_gpu_hour']:.2f}/GPU-h"],
    f"forecasts backtest --gpu H100 --count 8 --max-price 1.85 --max-runtime 24h --data {PRIME}": events,
    f"forecasts backtest --gpu H100 --max-price 1.85 --sweep max_price=1.80:2.00:0.10 --data {PRIME}": lambda found: [
        f"{one['max_price_usd_gpu_hour']:.2f}" for one in found["steps"]
    ],
    "plan models gpt-oss": lambda found: [one["name"].partition("/")[2] for one in found["models"]],
    "plan job --size-of 7B --method qlora --tokens 1M --poll": lambda _: ["1× H100 SXM", "2.400"],
    "plan size --params 70B --method qlora": lambda found: [f"× {one['gpu']}" for one in found["fits"][:15]],
    "plan fit --price B200=9.50-12.00 --price H100-SXM=3.50 --vram 60": classes,
    "plan job '4x A100 @ 1.20 for 72h' '4x H100 @ 3.50 for 24h'": lambda _: ["4x A100", "4x H100", "345.60", "336.00"],
    "plan job '1x H100 @ 2.00' --size-of 1B --tokens 1B --set what_if=true": lambda found: [
        f"{one['memory_gb']:,.1f} GB" for one in found["changes"]
    ],
    f"plan cases --data {VAST}": lambda found: [one["offers"][0]["gpu"] for one in found["cases"]],
    f"plan hybrid --size-of 8B --tokens 100M --infer-tokens 1B --data {VAST}": lambda found: [found["train"]["gpu"]],
    "plan pilot '2x H100 @ 2.10' --tokens 100M --measured 412tok/s": lambda found: [f"{found['job_cost_usd']:,.2f}"],
    "plan buy": lambda found: [f"{one['price_usd_hour']:,.2f}" for one in found["tariffs"][:1]],
    "plan for company --rent 4": lambda found: [f"{found['ways'][0]['month_usd']:,.2f}"],
    "plan card 'H100 SXM'": lambda _: ["3,350 GB/s", "16,896", "70B"],
    "plan parallel '8x H100 SXM' --size-of 8B --method full": lambda _: ["DP 8, ZeRO 1", "28.00 GB a step", "chosen"],
    "plan use --price 4.00": lambda found: [f"{one['useful_usd_gpu_hour']:,.2f}" for one in found["uses"]],
    "plan scenario": lambda found: [f"{one['total_usd']:,.2f}" for one in found["scenarios"]],
}


def test_every_command_that_prints_a_table_is_tried() -> None:
    entries, folder = dict(_entries()), Path(gpuwatch.cli.__file__).parent
    tried = {place for name, place in entries.items() if any(f"{line} ".startswith(f"{name} ") for line in COMMANDS)}
    paths = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py") if _prints_a_table(path)]
    printing = {".".join(path.parts) for path in paths}
    assert len(printing) > 10
    helpers = printing - set(entries.values())
    assert printing - helpers - tried == set()
    assert [
        one for one in helpers if one != "terminal_tables" and not one.startswith(tuple(f"{of}_" for of in tried))
    ] == []


RECURRING = """
command = "python train.py"
resources = { gpu = "H100" }
limit = { max_usd = 10 }
schedule = "0 2 * * 6"
within = "6h"
"""


def _entries() -> Iterator[tuple[str, str]]:
    """Yield the words of each command, and the module that holds it."""
    for name, entry in chain.from_iterable(section.items() for section in SECTIONS.values()):
        if not isinstance(entry, GroupEntry):
            yield name, entry[1].partition(":")[0]
            continue
        yield from ((f"{name} {inner}", place.partition(":")[0]) for inner, (_, place) in entry.commands.items())
        if "list" in entry.commands:
            yield name, entry.commands["list"][1].partition(":")[0]


def _prints_a_table(path: Path) -> bool:
    calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return any(getattr(call, "id", getattr(call, "attr", "")) in {"table", "table_lines"} for call in calls)


@pytest.fixture
def home(
    shell: Shell, market: Marketplace, monkeypatch: pytest.MonkeyPatch, request: Any, h100_prices: Path
) -> Iterator[Shell]:
    """A store with a quote, a launch and a blocked machine, and the recorded prices in this folder."""
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    house = House(shell, market)
    house.fires()
    rows = Rows(shell.folder)
    launch = rows.reserve(LAUNCH, gpu="H100 SXM")
    rows.move(launch, LaunchState.REQUESTED)
    rows.store.close()
    assert shell("machines", "block", "77", "--for", "7d", "--why", "a slow disk that takes hours to read").code == 0
    (shell.folder / "train.toml").write_text(JOB)
    (shell.folder / "nightly.toml").write_text(RECURRING)
    assert shell("job", "submit", "train.toml", "nightly.toml").code == 0
    (shell.folder / "tests").symlink_to(request.config.rootpath / "tests")
    (shell.folder / PRIME).symlink_to(h100_prices)
    yield shell
    house.store.close()


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line.partition(" --data")[0])
def test_no_id_price_date_or_gpu_is_cut(home: Shell, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line)
    facts = COMMANDS[line](home(*words, "--json").json)
    assert facts, "there is something to show"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    for width in (60, 80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        ran = home(*words)
        assert [fact for fact in facts if fact not in ran.out] == [], f"{width} columns:\n{ran.out}"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_commissions_that_may_fit_the_bill_are_never_cut(
    shell: Shell, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.settings(f'database_url = "sqlite:///{shell.folder}/gpuwatch.db"\n')
    rows = Charges(shell.folder)
    for hours in (9.0, 10.0, 11.0):
        launch = rows.add(hours=hours)
        rows.charge(launch, round(3_000_000 * hours))
    rows.store.close()
    found = shell("costs", "--calibrate", "--json").json["providers"][0]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    ran = shell("costs", "--calibrate")
    errors = [f"{one['median_error_percent']:.2f} %" for one in found["candidates"]]
    assert len(errors) > 1
    assert [error for error in errors if error not in ran.out] == [], ran.out


@pytest.mark.parametrize("line", [*COMMANDS, "doctor"], ids=lambda line: line.partition(" --data")[0])
def test_ascii_is_enough(home: Shell, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)
    for more in ((), ("--json",)):
        capsys.readouterr()
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="ascii", errors="strict")  # type: ignore[union-attr] pytest's own
        ran = home(*words, *more)
        assert ran.out
        assert (ran.out + ran.err).isascii()
