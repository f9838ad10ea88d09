"""`gpuwatch watches rehearse` and `gpuwatch doctor --provider`: a line for each missing prerequisite, no rent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuwatch.cli import Exit
from gpuwatch.emulator import Marketplace
from tests.cli.conftest import Shell, older_schema
from tests.clouds.aws import Ec2
from tests.clouds.aws_account import KEY_PAIR, SSH_GROUP, Ec2Account
from tests.clouds.primeintellect import PrimeIntellectServer
from tests.upgraded_store import open_upgraded

HEAD = """
dry_run = false
database_url = "sqlite:///{folder}/gpuwatch.db"
[budget]
max_usd_hour = 20
[providers.vastai]
enabled = false
[providers.aws]
base_url = "{url}"
api_key = "demo-key:demo-secret"
options.regions = ["us-east-1"]
{options}
[[watch]]
name = "a10g"
gpu = ["A10G"]
max_price = {max_price}
action = "launch"
providers = ["aws"]
[watch.launch]
max_runtime = "2h"
"""
OPTIONS = f'options.key_name = "{KEY_PAIR}"\noptions.security_groups = ["us-east-1={SSH_GROUP}"]'


@pytest.fixture
def ec2(shell: Shell) -> Iterator[Ec2]:
    with Ec2(account=Ec2Account()) as place:
        write(shell, place)
        yield place


def write(shell: Shell, place: Ec2, options: str = OPTIONS, max_price: str = "2.0") -> None:
    shell.settings(HEAD.format(folder=shell.folder, url=place.url, options=options, max_price=max_price))


def states(shell: Shell, *argv: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in shell("rehearse", "a10g", "--json").json["lines"]:
        found.setdefault(line["state"], []).append(line["name"])
    return found


def test_a_watch_that_could_rent_is_ready_and_nothing_was_rented(shell: Shell, ec2: Ec2) -> None:
    ran = shell("rehearse", "a10g")
    assert (ran.code, ran.out.splitlines()[-1]) == (Exit.DONE, "a10g is ready to rent.")
    assert "us-east-1/us-east-1a/g5.xlarge/on-demand" in ran.out
    assert "EC2 would accept the order (DryRun)" in ran.out
    assert ec2.instances == {}
    assert not (shell.folder / "gpuwatch.db").exists()
    found = shell("rehearse", "a10g", "--json").json
    assert (found["watch"], found["ready"], found["missing"], found["dry_run"]) == ("a10g", True, [], False)


LACKS: list[tuple[Callable[[Ec2Account], Any], str, str, str]] = [
    (lambda one: one.rights.add("DescribeInstances"), OPTIONS, "credentials", "ec2:DescribeInstances"),
    (lambda one: one.quotas.update({("us-east-1", "L-DB2E81BA"): 0.0}), OPTIONS, "quota", "request a higher EC2 quota"),
    (lambda one: one.key_pairs.clear(), OPTIONS, "key-pair", "import-key-pair"),
    (lambda one: setattr(one, "parameters_missing", True), OPTIONS, "image", "options.image"),
    (lambda one: one.zones_without_subnet.add("us-east-1a"), OPTIONS, "network", "create-default-subnet"),
    (lambda one: one.disabled_regions.add("us-east-1"), OPTIONS, "region", "enable us-east-1"),
    (lambda one: one.rights.add("RunInstances"), OPTIONS, "order", "ec2:RunInstances"),
    (lambda one: None, f'options.key_name = "{KEY_PAIR}"', "network", "options.ssh_from"),
]


@pytest.mark.parametrize(("lack", "options", "name", "mend"), LACKS)
def test_each_missing_prerequisite_is_a_line_with_its_mend_and_its_page(
    shell: Shell, ec2: Ec2, lack: Callable[[Ec2Account], Any], options: str, name: str, mend: str
) -> None:
    lack(ec2.account)
    write(shell, ec2, options)
    ran = shell("rehearse", "a10g", "--json")
    assert ran.code == Exit.FAILED
    assert ran.json["ready"] is False
    (line,) = [one for one in ran.json["lines"] if one["state"] == "missing" and one["name"] == name]
    assert mend in line["mend"]
    assert line["docs"] == "providers/aws.md#before-the-first-rent"
    shown = shell("rehearse", "a10g").out
    assert f"MISSING aws {name}" in shown
    assert shown.splitlines()[-1] == "a10g is not ready to rent."
    doctor = shell("doctor", "--provider", "aws", "--json")
    assert doctor.code == Exit.FAILED
    assert any(one["state"] == "fault" and one["text"].startswith(f"{name}") for one in doctor.json)
    assert ec2.instances == {}


def test_doctor_of_one_provider_reports_what_is_met(shell: Shell, ec2: Ec2) -> None:
    ran = shell("doctor", "--provider", "aws")
    assert ran.code == Exit.DONE
    assert "ok    aws quota (us-east-1 G and VT on demand): 1000 vCPUs, 0 in use, 4 needed" in ran.out
    assert "database" not in ran.out


def test_doctor_of_a_provider_that_is_not_enabled_is_a_wrong_usage(shell: Shell, ec2: Ec2) -> None:
    ran = shell("doctor", "--provider", "runpod")
    assert ran.code == Exit.USAGE
    assert "set enabled = true in [providers.runpod]" in ran.err
    assert "there is no provider 'runpot'" in shell("doctor", "--provider", "runpot").err


def test_a_provider_that_does_not_answer_leaves_it_open(shell: Shell, ec2: Ec2) -> None:
    ec2.fail("POST /GetServiceQuota", None, times=20)
    ran = shell("rehearse", "a10g")
    assert ran.code == Exit.CANNOT_TELL
    assert ran.out.splitlines()[-1] == "Cannot tell whether a10g is ready to rent."


def test_over_the_limit_the_cheapest_that_fits_stands_for_it(shell: Shell, ec2: Ec2) -> None:
    write(shell, ec2, max_price="0.10")
    ran = shell("rehearse", "a10g")
    assert ran.code == Exit.DONE
    assert "no offer at or under $0.10/GPU-h now; rehearsed with the cheapest match" in ran.out
    assert "(DryRun)" in ran.out


def test_budgets_and_pauses_stand_against_it(shell: Shell, ec2: Ec2) -> None:
    open_upgraded(f"sqlite:///{shell.folder}/gpuwatch.db").close()
    assert "limits: no pause, limit or budget blocks it" in shell("rehearse", "a10g").out.replace("aws ", "")
    shell("pause", "--why", "holidays")
    ran = shell("rehearse", "a10g")
    assert ran.code == Exit.FAILED
    assert "MISSING aws limits" in ran.out
    assert "holidays" in ran.out


def test_an_older_store_leaves_it_open_and_stays_as_it_is(shell: Shell, ec2: Ec2) -> None:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    open_upgraded(url).close()
    older_schema(url)
    before = (shell.folder / "gpuwatch.db").read_bytes()
    assert shell("rehearse", "a10g").code == Exit.CANNOT_TELL
    assert (shell.folder / "gpuwatch.db").read_bytes() == before


def test_a_watch_that_only_alerts_and_a_name_of_none_are_wrong_usage(shell: Shell, ec2: Ec2) -> None:
    text = (shell.folder / "gpuwatch.toml").read_text()
    shell.settings(text.replace('action = "launch"', 'action = "alert"').replace("[watch.launch]\n", "").replace(
        'max_runtime = "2h"\n', ""))  # fmt: skip
    assert shell("rehearse", "a10g").code == Exit.USAGE
    assert shell("rehearse", "a10h").code == Exit.USAGE


def test_what_a_real_rent_would_lack_is_missing_in_a_dry_run_too(shell: Shell, ec2: Ec2) -> None:
    text = (shell.folder / "gpuwatch.toml").read_text()
    shell.settings(text.replace("dry_run = false", "dry_run = true").replace("[budget]\nmax_usd_hour = 20\n", ""))
    ran = shell("rehearse", "a10g")
    assert ran.code == Exit.FAILED
    assert "add [budget] max_usd_hour" in ran.out


VAST = """
database_url = "sqlite:///{folder}/gpuwatch.db"
[budget]
max_usd_hour = 20
[[watch]]
name = "h100"
gpu = ["H100"]
max_price = 3.6
action = "launch"
[watch.launch]
max_runtime = "24h"
"""


def test_at_the_marketplace_credentials_and_balance_are_what_counts(
    shell: Shell, market: Marketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.settings(VAST.format(folder=shell.folder))
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    assert shell("rehearse", "h100").code == Exit.FAILED  # no key
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    ran = shell("rehearse", "h100")
    assert ran.code == Exit.DONE, ran.out
    assert "vastai balance" in ran.out
    market.faults.add("instances", "403", times=None)
    assert "MISSING vastai credentials" in shell("rehearse", "h100").out
    assert {request.method for request in market.requests} == {"GET"}


def test_a_balance_under_one_hour_of_the_first_offer_is_missing(shell: Shell, market: Marketplace) -> None:
    """As before an order: listed 2.00 is 2.40 with the commission."""
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    shell.settings(VAST.format(folder=shell.folder) + '[providers.vastai]\napi_key = "demo-key"\n')
    for credit_usd, code in ((2.39, Exit.FAILED), (2.50, Exit.DONE)):
        market.credit_usd = credit_usd
        ran = shell("rehearse", "h100")
        assert ran.code == code, ran.out
        assert ("the balance is $2.39, less than one hour at $2.40" in ran.out) is (code == Exit.FAILED)


def test_the_offer_that_the_daemon_would_order_comes_first(shell: Shell, market: Marketplace) -> None:
    """Within the tie the smaller machine wins, although eight GPUs cost less per GPU."""
    for count, usd_hour in ((1, 2.0), (8, 8 * 1.99)):
        market.publish(gpu="H100 SXM", count=count, usd_hour=usd_hour)
    text = VAST.format(folder=shell.folder) + '[providers.vastai]\napi_key = "demo-key"\n'
    wish = 'action = "launch"\ngpu_count = { min = 1, max = 8 }'
    plain = text.replace('action = "launch"', wish)
    for tie, wanted in (("1%", "2.40"), ("0%", "2.388")):
        shell.settings(plain.replace('action = "launch"', f'action = "launch"\ntie = "{tie}"'))
        first = next(line for line in shell("rehearse", "h100").out.splitlines() if "would be ordered first" in line)
        assert first.endswith(f"at ${wanted}/GPU-h")


def test_without_any_offer_it_cannot_tell(shell: Shell, market: Marketplace) -> None:
    shell.settings(VAST.format(folder=shell.folder) + '[providers.vastai]\napi_key = "demo-key"\n')
    ran = shell("rehearse", "h100")
    assert (ran.code, "nowhere is an offer that fits" in ran.out) == (Exit.CANNOT_TELL, True), ran.out


def test_an_order_that_the_provider_could_not_take_is_missing_and_nothing_is_sent(shell: Shell) -> None:
    with PrimeIntellectServer() as place:
        text = (
            VAST.format(folder=shell.folder)
            + f"""
onstart = "python train.py"
[providers.vastai]
enabled = false
[providers.primeintellect]
base_url = "{place.url}"
api_key = "demo-key"
"""
        )
        shell.settings(text)
        ran = shell("rehearse", "h100")
        assert ran.code == Exit.FAILED
        assert "MISSING primeintellect order: primeintellect: nothing was sent" in ran.out
        assert "start commands" in ran.out
        shell.settings(text.replace('onstart = "python train.py"', ""))
        assert shell("rehearse", "h100").code == Exit.DONE
        assert {request.method for request in place.requests} == {"GET"}
