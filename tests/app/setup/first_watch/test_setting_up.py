"""What surrounds the questions of `gpuwatch init`, with the embedded marketplace and real channels on loopback."""

from __future__ import annotations

import csv
import json
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from gpuwatch.app.setup.first_watch.first_settings import FirstWatch, channel_lines, settings_text
from gpuwatch.app.setup.first_watch.gpu_choice import GpuChoice
from gpuwatch.app.setup.first_watch.market_reader import OWN_SOURCE
from gpuwatch.app.setup.first_watch.price_figures import LowPrice
from gpuwatch.app.setup.first_watch.questions import Answered
from gpuwatch.app.setup.first_watch.setting_up import (
    local_zone,
    login_key,
    new_variables,
    open_surroundings,
    replaced_variables,
    write_first_watch,
)
from gpuwatch.bootstrap import real_now
from gpuwatch.cli import run
from gpuwatch.domain.watches.watch import Action
from gpuwatch.emulator import Marketplace
from gpuwatch.errors import SettingsError
from gpuwatch.notifiers.telegram.telegram_setup import ask_telegram
from gpuwatch.ports.dialog import ChannelAnswers
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.settings import load
from tests.app.setup.first_watch.test_questions import ScriptedDialog
from tests.smtp_server import smtp_server
from tests.telegram_double import TOKEN, telegram

NAMES = ("H100 SXM",)
COLUMNS = (
    "observed_at", "provider", "offer_key", "region", "gpu_name_raw", "gpu_count", "gpu_mem_gib", "spot",
    "price_usd_hour",
)  # fmt: skip


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Marketplace]:
    """Three hosts: verified, not verified, and cheap but unreliable."""
    for name in ("VAST_API_KEY", "GPUWATCH_CONFIG", "STATE_DIRECTORY", "CREDENTIALS_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    with Marketplace(seed=1, key="demo-key", size=8, odd_rows=False) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        opened.publish(usd_hour=2.0, verified=True, reliability2=0.99)
        opened.publish(usd_hour=1.5, verified=False, reliability2=0.99)
        opened.publish(usd_hour=1.0, verified=True, reliability2=0.80)
        opened.publish(usd_hour=2.4, count=2, verified=True, reliability2=0.99)
        monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__BASE_URL", opened.url)
        monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__SEARCH_INTERVAL", "0s")
        monkeypatch.setenv("GPUWATCH_TEST_PACE", "20")
        monkeypatch.chdir(tmp_path)
        yield opened


def answered(channel: ChannelAnswers | None = None, key: str = "") -> Answered:
    channels = {} if channel is None else {"telegram": channel}
    first = FirstWatch(gpu=GpuChoice("H100", NAMES), max_price=Decimal(2), channels=channels)
    return Answered(first=first, key=key)


def test_todays_price_is_one_that_the_watch_accepts(market: Marketplace, tmp_path: Path) -> None:
    """Not the unverified host, nor the unreliable one, nor half of a machine with two."""
    with open_surroundings(tmp_path / "gpuwatch.toml") as around:
        figures = around.reader.figures(NAMES)
        (low,) = figures.today
        assert (low.provider, low.usd_gpu_hour) == ("vastai", Decimal(2))
        assert figures.source.startswith("public prices of vast.ai")
        market.withdraw(next(row["id"] for row in market.offers() if row["dph_total"] == 2.0))
        assert around.reader.figures(NAMES).today == ()
        assert around.reader.figures(NAMES).faults == ()


def test_markets_that_rate_no_hosts_do_not_require_it(
    market: Marketplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "r")
    monkeypatch.setenv("GPUWATCH_PROVIDERS__RUNPOD__BASE_URL", "http://127.0.0.1:9")
    with open_surroundings(tmp_path / "gpuwatch.toml") as around:
        assert not around.rates_hosts
        figures = around.reader.figures(NAMES)
    assert [low.usd_gpu_hour for low in figures.today] == [Decimal(1)]
    assert [fault.partition(":")[0] for fault in figures.faults] == ["RunPod"]


def test_the_own_history_counts_from_three_days_on(market: Marketplace, tmp_path: Path) -> None:
    now = real_now()
    path = tmp_path / "prices.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(COLUMNS)
        for day, price in enumerate(["1.40", "1.60", "1.50"], 1):
            at = f"{now - timedelta(days=day):%Y-%m-%dT12:00:00Z}"  # at night, a price would hold on the next day, too
            rows.writerow([at, "vastai", "1/ondemand", "", "H100 SXM", 1, 80, "false", price])
            rows.writerow([at, "vastai", "2/ondemand", "", "H100 SXM", 8, 80, "false", "0.10"])  # not what it watches
    assert run(["store", "import", str(path)]) == 0
    with open_surroundings(tmp_path / "gpuwatch.toml") as around:
        figures = around.reader.figures(NAMES)
    assert figures.source == f"{OWN_SOURCE}, any host"
    dear = msgspec.structs.replace(figures, today=(LowPrice("vastai", Decimal(3)),))
    assert dear.suggested({}) == Decimal(3), "what is far cheaper may be of hosts that the watch leaves out"
    assert figures.suggested({"vastai": Decimal("0.2")}) == Decimal("1.80")  # 1.50 on the bill, on two of three days


def test_the_account_says_whether_a_key_works(
    market: Marketplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_surroundings(tmp_path / "gpuwatch.toml") as around:
        assert around.check_key("demo-key").text == "vast.ai accepts the key, the balance is $100.00."
        assert around.check_key("wrong").is_refused
        assert around.check_key("two words").is_refused
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__BASE_URL", "http://127.0.0.1:9")
    with open_surroundings(tmp_path / "gpuwatch.toml") as around:
        check = around.check_key("demo-key")
    assert not check.is_refused
    assert check.text.startswith("The key could not be checked")


def test_mail_is_three_answers_and_a_test_message(market: Marketplace, tmp_path: Path) -> None:
    with smtp_server("none") as box, open_surroundings(tmp_path / "gpuwatch.toml") as around:
        dialog = ScriptedDialog("nonsense", "me@example.org", f"127.0.0.1:{box.port}", "")
        answers = around.choices["mail"].ask(dialog)
        assert answers is not None
        assert "? Mail server, with its port if it is not 587 [smtp.example.org]" in dialog.said
        assert around.send_test("email", answers) is None
        assert box.recipients == [["me@example.org"]]
        assert around.choices["mail"].ask(ScriptedDialog("")) is None
        closed = ChannelAnswers(values={**answers.values, "port": 9})
        assert "email" in str(around.send_test("email", closed)).lower() or around.send_test("email", closed)


class _Received(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.mark.filterwarnings("ignore")  # of Apprise, which would be errors here
def test_ntfy_slack_and_discord_are_one_line_each(market: Marketplace, tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Received)
    server.bodies = []  # type: ignore[attr-defined]
    Thread(target=server.serve_forever, daemon=True).start()
    with open_surroundings(tmp_path / "gpuwatch.toml") as around:
        assert list(around.choices) == ["telegram", "mail", "ntfy", "slack", "discord"]
        ntfy = around.choices["ntfy"].ask(ScriptedDialog(f"http://127.0.0.1:{server.server_port}/mine"))
        assert ntfy is not None
        assert around.send_test("apprise", ntfy) is None
        assert b"test" in server.bodies[0].lower()  # type: ignore[attr-defined]
        default = around.choices["ntfy"].ask(ScriptedDialog(""))
        other = around.choices["ntfy"].ask(ScriptedDialog(""))
        assert default is not None
        assert json.loads(default.secrets["urls"])[0].startswith("ntfys://gpuwatch-")
        assert default != other  # whoever knows a topic can read it
        hook = "https://hooks.slack.com/services/T0000000A/B0000000B/abcdefghijklmnopqrstuvwx"
        slack = around.choices["slack"].ask(ScriptedDialog("nonsense", hook))
        assert slack == ChannelAnswers(secrets={"urls": json.dumps([hook])})
        assert around.choices["discord"].ask(ScriptedDialog("")) is None
    server.shutdown()
    variables = new_variables(tmp_path / "gpuwatch.toml", Answered(first=answered().first))
    assert variables == {}
    first = FirstWatch(gpu=GpuChoice("H100", NAMES), max_price=Decimal(2), channels={"apprise": slack})
    target = tmp_path / "gpuwatch.toml"
    write_first_watch(target, Answered(first=first), new_variables(target, Answered(first=first)), force=False)
    assert load(cwd=tmp_path).channels["apprise"].revealed().options["urls"] == (hook,)


@pytest.mark.parametrize("webhook", ["", "https://example.org/telegram"])
def test_a_bot_that_cannot_be_read_gets_its_chat_by_hand(
    market: Marketplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, webhook: str
) -> None:
    with telegram() as double:
        double.webhook = webhook
        double.chats = {"5001"}
        if not webhook:
            double.always = type(double.answer("/x", b"{}")[0])(409, "Conflict: terminated by other getUpdates request")
        monkeypatch.setenv("GPUWATCH_NOTIFY__TELEGRAM__BASE_URL", double.base_url)
        with open_surroundings(tmp_path / "gpuwatch.toml") as around:
            dialog = ScriptedDialog(TOKEN, "5001")
            answers = around.choices["telegram"].ask(dialog)
            assert answers == ChannelAnswers(values={"chat_id": "5001"}, secrets={"bot_token": TOKEN})
    assert any(("webhook" if webhook else "Another program polls") in line for line in dialog.said)


def test_what_is_no_token_is_sent_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with telegram() as double:
        monkeypatch.setenv("GPUWATCH_NOTIFY__TELEGRAM__BASE_URL", double.base_url)
        with open_surroundings(tmp_path / "gpuwatch.toml") as around:
            dialog = ScriptedDialog("correct-horse", "")
            assert around.choices["telegram"].ask(dialog) is None
        assert double.methods == []
    assert any("is no bot's token" in line for line in dialog.said)


def test_a_group_names_who_may_press_its_buttons(tmp_path: Path) -> None:
    """In a private chat that is its user; in a group nobody, unless the settings name them."""
    with telegram() as double, closing(PooledHttpClient()) as http:
        double.chats = {"-4001"}
        double.write("/start c0de", 5001, chat=-4001)
        dialog = ScriptedDialog(TOKEN)
        answers = ask_telegram(dialog, http, {"base_url": double.base_url}, new_code=lambda: "c0de")
    assert answers == ChannelAnswers(values={"chat_id": "-4001", "users": ("5001",)}, secrets={"bot_token": TOKEN})
    assert list(channel_lines("telegram", answers))[1:] == [
        "chat_id = -4001                 # bot_token: in .env",
        "users = [5001]",
    ]
    assert [shown.chat_id for shown in double.shown] == ["-4001"]


def test_what_the_environment_sets_is_not_written_and_another_value_is_named(
    market: Marketplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "gpuwatch.toml"
    telegram_answers = ChannelAnswers(values={"chat_id": "5"}, secrets={"bot_token": "1:new"})
    (tmp_path / ".env").write_text("GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN=1:old\n")
    found = new_variables(target, answered(telegram_answers, key="k"))
    assert found == {"GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN": "1:new", "VAST_API_KEY": "k"}
    assert replaced_variables(target, found) == ["GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN"]
    monkeypatch.setenv("VAST_API_KEY", "other")
    assert "VAST_API_KEY" not in new_variables(target, answered(key="k"))
    with open_surroundings(target) as around:
        assert around.has_key
        assert around.half_set == {"telegram": ["GPUWATCH_NOTIFY__TELEGRAM__BOT_TOKEN"]}


def test_invalid_settings_write_nothing(market: Marketplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUWATCH_BUDGET__MAX_INSTANCES", "many")
    with pytest.raises(SettingsError):
        write_first_watch(tmp_path / "gpuwatch.toml", answered(key="k"), {"VAST_API_KEY": "k"}, force=False)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []


def test_the_zone_is_that_of_the_machine(tmp_path: Path) -> None:
    link = tmp_path / "localtime"
    assert local_zone({"TZ": ":Asia/Tokyo"}, link) == "Asia/Tokyo"
    link.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert local_zone({}, link) == "Europe/Berlin"
    assert local_zone({"TZ": "nonsense"}, link) == "Europe/Berlin"
    assert local_zone({}, tmp_path / "missing") == "UTC"


def a_key(folder: Path, name: str, passphrase: str = "") -> None:
    (folder / ".ssh").mkdir(exist_ok=True)
    made = folder / ".ssh" / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(made)], check=True)


def test_a_watch_that_rents_checks_by_logging_in_where_the_daemon_has_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    target = tmp_path / "gpuwatch.toml"
    assert login_key(target).why_not == "there is no key in ~/.ssh"
    a_key(tmp_path, "id_ed25519", passphrase="secret")
    assert login_key(target).why_not == "~/.ssh/id_ed25519 has a passphrase"
    a_key(tmp_path, "id_rsa")
    key = login_key(target)
    assert key.path == "~/.ssh/id_rsa"
    assert login_key(Path("/etc/gpuwatch/gpuwatch.toml")).path == ""
    watch = FirstWatch(gpu=GpuChoice("H100", NAMES), max_price=Decimal(2), action=Action.LAUNCH, login_key=key)
    text = settings_text(watch)
    assert tomllib.loads(text)["watch"][0]["launch"] == {
        "max_runtime": "4h", "verify": "ssh", "ssh_key": "~/.ssh/id_rsa"
    }  # fmt: skip
    without = msgspec.structs.replace(watch, login_key=login_key(Path("/etc/gpuwatch/gpuwatch.toml")))
    assert "not set: the system's service has a user of its own" in settings_text(without)
    assert "verify" not in tomllib.loads(settings_text(without))["watch"][0]["launch"]
    assert "verify" not in settings_text(msgspec.structs.replace(watch, action=Action.ALERT))
