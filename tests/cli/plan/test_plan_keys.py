"""The keys of a plan: `--set`, files, the options of a few; where former options went; the articles' own figures."""

from __future__ import annotations

import json

import pytest

from gpuwatch.app.plan.plan_request import JOB_OPTIONS
from gpuwatch.cli.plan.plan_job import job
from gpuwatch.domain.jobs.job_request import JobRequest
from gpuwatch.domain.plan.plan_schema import BuyRequest, FitRequest, ForRequest, SizeRequest
from tests.cli.conftest import Shell

A100, H100 = "4x A100 @ 1.20 for 72h", "4x H100 @ 3.50 for 24h"


def test_plan_job_has_ten_options_of_its_own() -> None:
    """Ten that people type, where to write the answer, and what every command has."""
    options = {option for param in job.params for option in param.opts if option.startswith("--")}
    ten = {*JOB_OPTIONS, "--by", "--watch"}
    assert len(ten) == 10
    assert options - ten == {
        "--model",
        "--params",
        "--now",
        "--set",
        "--keys",
        "--write",
        "--html",
        "--verbose",
        "--json",
        "--config",
    }


@pytest.mark.parametrize("key", sorted(JobRequest.model_fields))
def test_every_key_says_what_it_is(key: str) -> None:
    assert (JobRequest.model_fields[key].description or "").endswith((".", ":", "0: any."))


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("job", JobRequest), ("size", SizeRequest), ("fit", FitRequest), ("buy", BuyRequest),
        ("for startup", ForRequest),
    ],
)  # fmt: skip
def test_all_keys_are_listed(shell: Shell, command: str, kind: type[JobRequest]) -> None:
    ran = shell("plan", *command.split(), "--keys")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == [
        key for key in kind.model_fields if key not in kind.unused_keys
    ]
    assert kind.unused_keys <= kind.model_fields.keys()


def test_a_file_then_set_then_the_options(shell: Shell) -> None:
    (shell.folder / "mine.toml").write_text(
        f'[plan]\ncandidates = ["{A100}"]\ncommission = 0.5\ncredit = 100\nmax_cost = 1\n'
    )
    found = shell("plan", "job", "mine.toml", "--set", "commission=0.2", "--under", "500", "--json").json
    (one,) = found["candidates"]
    assert (one["job_cost_usd"], one["after_credit_usd"], found["feasible"]) == (414.72, 314.72, "feasible")
    named = shell("plan", "job", "mine.toml", H100, "--json").json["candidates"]
    assert [one["cards"] for one in named] == ["4x H100"], "candidates that are typed replace those of the file"


JOB_FILE = """
command = "python train.py"
hours   = "18-20"
limit   = {{ max_usd = 60 }}
[resources]
gpu       = ["RTX 4090"]
gpu_count = 1
disk_gb   = 40
[plan]
data = "{data}"
{more}
"""
COLUMNS = "observed_at,provider,offer_key,region,gpu_name_raw,gpu_count,gpu_mem_gib,spot,price_usd_hour"


def test_a_job_file_is_planned_as_it_is_and_can_be_submitted(shell: Shell) -> None:
    """Its hours, resources and limit are those of the plan; the queue does not use [plan]."""
    rows = ["1,EU,RTX 4090,1,24,false,0.50", "2,EU,H100 SXM,1,80,false,0.20", "3,EU,RTX 4090,2,24,false,0.10"]
    (shell.folder / "prices.csv").write_text("\n".join([COLUMNS, *(f"2026-03-01T00:00:00Z,m,{row}" for row in rows)]))
    path = shell.folder / "night.toml"
    path.write_text(JOB_FILE.format(data=shell.folder / "prices.csv", more="setup = '30m'"))
    found = shell("plan", "job", "night.toml", "--json")
    assert found.code == 0, found.err
    (offer,) = found.json["offers"]
    assert (offer["offer_id"], offer["hours"], found.json["disk_gb"]) == ("1", 20.5, 40)
    assert found.json["feasible"] == "feasible"
    shell.settings("[providers.vastai]\n")
    shell.new_store()
    assert shell("job", "submit", "night.toml").code == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[plan]\ncolour = 1\n", "mine.toml: colour: unknown key"),
        ("colour = 1\n", "mine.toml: colour: unknown key; figures of the planner belong in [plan]"),
        ("plan = 3\n", "mine.toml: plan: expected a table"),
        ("[plan\n", "mine.toml: "),
        ("#" * 1_000_001, "mine.toml: expected a file of at most 1 MB"),
        ('[plan]\nepochs = "many"\n', "mine.toml: epochs: expected a number above 0"),
    ],
)
def test_a_file_that_is_no_good_is_one_line(shell: Shell, content: str, said: str) -> None:
    (shell.folder / "mine.toml").write_text(content)
    for command in ("job", "size", "fit", "buy"):
        if command != "job" and "epochs" in content:
            continue
        ran = shell("plan", command, "mine.toml")
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert said in ran.err
    assert shell("plan", "job", "nowhere.toml").err.strip() == "nowhere.toml: No such file or directory"


@pytest.mark.parametrize(
    ("command", "argv", "said"),
    [
        ("job", "--epochs 3", "--epochs is now a key: --set epochs=3, or epochs = 3 under [plan] in a job file"),
        ("job", "--setup=10m", '--setup is now a key: --set setup=10m, or setup = "10m" under [plan] in a job file'),
        ("job", "--preloaded", "--preloaded is now a key: --set preloaded=true, or preloaded = true under [plan]"),
        ("job", "--no-master", "--no-master is now a key: --set master=false, or master = false under [plan]"),
        ("job", "--max-cost 100", "--max-cost is now --under: --under 100"),
        ("job", "--seed", "--seed is now a file with the sources' figures: gpuwatch plan job articles-job.toml"),
        ("size", "--keep-activations", "--keep-activations is now a key: --set recompute=false"),
        ("size", "--seed", "gpuwatch plan size articles-size.toml"),
        ("fit", "--batch 4", "--batch is now a key: --set batch=4"),
        ("fit", "--seed", "gpuwatch plan fit articles-fit.toml"),
        ("buy", "--kwh 0.3", "--kwh is now a key: --set kwh=0.3"),
        ("buy", "--seed", "gpuwatch plan buy articles-buy.toml"),
        ("scenario", "--seed", "gpuwatch plan scenario articles-scenario.toml"),
        ("job", "--colour", "No such option '--colour'"),
        ("job", "--set epochs", "--set 'epochs': expected key=value, such as epochs=3"),
        ("job", "--set colour=1", "colour: unknown key"),
        ("job", "--set disk=1", "disk: unknown key; did you mean disk_gb?"),
        ("size", "one.toml two.toml", "expected one FILE whose name ends in .toml, not 'two.toml'"),
        ("size", "70B", "expected one FILE whose name ends in .toml, not '70B'"),
    ],
)
def test_a_former_option_says_where_it_went(shell: Shell, command: str, argv: str, said: str) -> None:
    ran = shell("plan", command, *argv.split(" "))
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err


def test_a_moved_option_with_blanks_can_be_pasted(shell: Shell) -> None:
    ran = shell("plan", "job", "--speedup", "4x H100=2.5")
    assert "--set 'speedup=4x H100=2.5'" in ran.err


def test_a_key_takes_one_value_several_or_a_list(shell: Shell) -> None:
    cards = ("1x A100 @ 1", "1x H100 @ 2")
    tokens = ("--tokens", "1M")
    one = shell("plan", "job", *cards, *tokens, "--set", "tokens-per-s=A100=100", "--set", "tokens_per_s=H100=200")
    two = shell("plan", "job", *cards, *tokens, "--set", 'tokens_per_s={"A100" = 100, "H100" = 200}')
    assert one.code == two.code == 0
    assert one.out == two.out
    listed = shell("plan", "job", *tokens, "--set", f"candidates={json.dumps(cards)}", "--set", "tokens_per_s=A100=1")
    assert "1x H100 @ 2" in listed.err


# --- the articles' own figures, as example files ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "figures"),
    [
        ("job articles-job.toml", "345.60 336.00 -9.60 2.9167×"),
        ("job articles-load.toml", "384.00 1.33–1.87 1.67–2.33"),
        ("size articles-size.toml", "28.00 2.00 30.00"),
        ("size articles-size.toml --batch 1 --set input_gb=0", "28.00 28.0"),
        ("size articles-size.toml --params 70B --batch 1 --set input_gb=0", "280.00 280.0"),
        ("size articles-size.toml --params 70B --precision bf16 --batch 1 --set input_gb=0", "140.00 140.0"),
        ("size articles-size.toml --params 70B --precision int4 --batch 1 --set input_gb=0", "35.0"),
        ("buy articles-buy.toml", "6× $17,000.00; 18,169.54 2,595.65 6.55 green"),
        ("buy articles-buy.toml --set kwh=0.15", "$104.83 6.59"),
        ("buy articles-buy.toml --set slower=2.5", "16.4"),
        ("buy articles-buy.toml --set slower=2.5 --set kwh=0.15", "16.6"),
        ("buy articles-buy-simple.toml", "700 29.2"),
        ("fit articles-fit.toml", "0.526 3.060 5.268 2.18–2.71"),
        ("fit articles-fit.toml --against T4", "10.01"),
        ("scenario articles-scenario.toml", "90.00 864.00 172.80 1,126.80 375.40 $751.40 (66.68"),
        ("scenario articles-own-or-rented.toml", "17,104.83 16,517.76 1,651.78 18,169.54 (537.6"),
        ("scenario naive-or-smart.toml", "1,126.80 375.40 225.64"),
    ],
)
def test_the_articles_figures(shell: Shell, command: str, figures: str) -> None:
    ran = shell("plan", *command.split(" "))
    assert ran.code == 0, ran.err
    printed = (ran.out + ran.err).replace("/GPU-h", "").replace("/h", "").replace("$", "")
    assert set(figures.replace("$", "").split()) - set(printed.replace("–", " ").split() + printed.split()) == set()


def test_an_example_is_found_by_its_path_too_and_a_file_of_that_name_comes_first(shell: Shell) -> None:
    assert "345.60" in shell("plan", "job", "examples/articles-job.toml").out
    (shell.folder / "articles-job.toml").write_text(f'[plan]\ncandidates = "{H100}"\n')
    assert "345.60" not in shell("plan", "job", "articles-job.toml").out
