"""`gpuwatch init` against the real world: what the questions are about, and the files that hold the answers."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

from gpuwatch import notifiers, providers
from gpuwatch.app.alerts.alerts import send_to_all
from gpuwatch.app.setup.config import write_settings
from gpuwatch.app.setup.first_watch.env_file import add_to_env_file
from gpuwatch.app.setup.first_watch.first_settings import LoginKey, channel_lines, settings_text
from gpuwatch.app.setup.first_watch.market_reader import all_rate_hosts, open_market_reader
from gpuwatch.app.setup.first_watch.questions import Answered, ChannelChoice, KeyCheck, Surroundings
from gpuwatch.app.setup.maintenance.systemd_unit import SYSTEM_SETTINGS
from gpuwatch.bootstrap import build_adapters, http_client, new_id, real_now
from gpuwatch.bootstrap.provider_access import has_credentials
from gpuwatch.domain.alerts.service_texts import TEST
from gpuwatch.domain.market.money import dollars
from gpuwatch.errors import GpuwatchError, KeyRejected, ProviderError
from gpuwatch.home_folder import expand_home
from gpuwatch.ports.dialog import ChannelAnswers, ChannelSetup, Dialog
from gpuwatch.ports.http import HttpClient
from gpuwatch.settings import Settings, load_draft
from gpuwatch.settings.external_values import read_dotenv
from gpuwatch.settings.plugin_options import variable_of
from gpuwatch.settings.sources import Sources

_KEY_NAMES = ("id_ed25519", "id_ecdsa", "id_rsa")
_OPENSSH, _NO_CIPHER = b"openssh-key-v1\0", b"\0\0\0\x04none"
_ZONE_FILE = Path("/etc/localtime")


@contextmanager
def open_surroundings(target: Path) -> Iterator[Surroundings]:
    """What is known before the first question. Raises SettingsError: the environment is invalid.

    Args:
        target: the settings file that will be written; gpuwatch will start in its folder, with the `.env` there.
    """
    settings, sources = load_draft(target, b"", {}, left_out=("notify", "watch"))
    paths = {one.path for one in sources.external}
    reserves = [name for name in settings.providers if ("providers", name, "commission") not in paths]
    accounts = [name for name in settings.providers if providers.info(name).on_by_default]
    with http_client(settings) as http, open_market_reader(settings) as reader:
        yield Surroundings(
            reader=reader,
            rates={name: Decimal(one.commission.on_top_rate(None)) for name, one in settings.providers.items()},
            rates_hosts=all_rate_hosts(settings),
            timezone=settings.timezone if ("timezone",) in paths else local_zone(os.environ, _ZONE_FILE),
            reserve_of=next((name for name in reserves if providers.info(name).commission.rate), None),
            key_of=next(iter(accounts), None),
            has_key=any(has_credentials(settings.providers[name]) for name in accounts),
            choices=_choices(http, sources),
            own_channels=_own_channels(sources),
            half_set=_half_set(sources),
            send_test=partial(send_channel_test, target, http),
            check_key=partial(check_key, target, http, next(iter(accounts), "")),
            login_key=login_key(target),
        )


def new_variables(target: Path, answered: Answered) -> dict[str, str]:
    """The secrets that `.env` does not hold yet, by variable; those of the environment itself stay there."""
    found = {
        variable_of(("notify", channel, option)): text
        for channel, answers in answered.first.channels.items()
        for option, text in answers.secrets.items()
    }
    if answered.key:
        name = next(name for name in providers.names() if providers.info(name).on_by_default)
        found[providers.info(name).key_names[0]] = answered.key
    present = read_dotenv(target.parent)
    return {name: text for name, text in found.items() if name not in os.environ and present.get(name) != text}


def replaced_variables(target: Path, variables: Mapping[str, str]) -> list[str]:
    """The variables that `.env` sets to something else now."""
    present = read_dotenv(target.parent)
    return [name for name in variables if present.get(name)]


def write_first_watch(target: Path, answered: Answered, variables: Mapping[str, str], *, force: bool) -> Settings:
    """Check the settings, then write `.env` and the settings file; returns the settings in force.

    Raises:
        SettingsError: they are invalid together with the environment; nothing was written.
        GpuwatchError: a file exists and `force` is not set, or it cannot be written.
    """
    text = settings_text(answered.first)
    settings, _ = load_draft(target, text.encode(), variables)
    if variables:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        add_to_env_file(target.parent / ".env", variables)
    write_settings(target, text, force=force)
    return settings


def login_key(target: Path) -> LoginKey:
    """The usual private key, if the daemon that reads these settings can use it: nobody types a passphrase for it."""
    if target.absolute().parent == SYSTEM_SETTINGS.parent:
        return LoginKey(why_not="the system's service has a user of its own, which reads no home folder")
    why_not = "there is no key in ~/.ssh"
    for name in _KEY_NAMES:
        path = f"~/.ssh/{name}"
        try:
            text = expand_home(path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError:
            why_not = f"gpuwatch cannot read {path}"
            continue
        if not has_passphrase(text):
            return LoginKey(path=path)
        why_not = f"{path} has a passphrase"
    return LoginKey(why_not=why_not)


def has_passphrase(private_key: str) -> bool:
    """Whether a private key is encrypted: in PEM its head says so, in OpenSSH's format the name of its cipher."""
    if "ENCRYPTED" in private_key:
        return True
    body = "".join(line for line in private_key.splitlines() if not line.startswith("-----"))
    try:
        raw = b64decode(body)
    except ValueError:
        return False
    return raw.startswith(_OPENSSH) and not raw.removeprefix(_OPENSSH).startswith(_NO_CIPHER)


def local_zone(env: Mapping[str, str], zone_file: Path) -> str:
    """The zone of this machine's user: `$TZ`, or what the system's zone file is a link to; else UTC."""
    for text in (env.get("TZ", "").lstrip(":"), os.path.realpath(zone_file).partition("zoneinfo/")[2]):
        try:
            if text:
                return ZoneInfo(text).key.removeprefix("Etc/")
        except (ValueError, OSError, KeyError):
            continue
    return "UTC"


def _choices(http: HttpClient, sources: Sources) -> Mapping[str, ChannelChoice]:
    """What may be typed, in the order in which it is shown."""
    setups = [(channel, setup) for channel in notifiers.names() for setup in notifiers.info(channel).setups]
    return {
        setup.name: ChannelChoice(channel, partial(_ask_channel, setup, http, _given(sources, channel)))
        for channel, setup in sorted(setups, key=lambda one: one[1].rank)
    }


def _ask_channel(
    setup: ChannelSetup, http: HttpClient, given: Mapping[str, str], dialog: Dialog
) -> ChannelAnswers | None:
    return setup.ask(dialog, http, given)


def _given(sources: Sources, channel: str) -> dict[str, str]:
    """The options of a channel that are set outside the file."""
    return {one.path[2]: one.text for one in sources.external if one.path[:2] == ("notify", channel) and one.path[2:]}


def _own_channels(sources: Sources) -> list[str]:
    """Channels that are set up completely outside the file."""
    return [name for name in notifiers.names() if _needed(name) <= _given(sources, name).keys()]


def _half_set(sources: Sources) -> dict[str, list[str]]:
    """Channels of which some options are set outside the file, and others are missing; with the variables."""
    return {
        name: [variable_of(("notify", name, option)) for option in given]
        for name in notifiers.names()
        if (given := _given(sources, name)) and not _needed(name) <= given.keys()
    }


def _needed(channel: str) -> set[str]:
    return {spec.name for spec in notifiers.info(channel).options if spec.needed}


def send_channel_test(target: Path, http: HttpClient, channel: str, answers: ChannelAnswers) -> str | None:
    """Send a test message; returns why it did not arrive."""
    content = "\n".join(channel_lines(channel, answers)).encode()
    variables = {variable_of(("notify", channel, option)): text for option, text in answers.secrets.items()}
    try:
        settings, _ = load_draft(target, content, variables, left_out=("watch",))
        built = notifiers.build(settings.channels[channel].revealed(), http)
    except GpuwatchError as error:
        return str(error)
    (result,) = send_to_all([built], TEST.alert(new_id(), real_now()))
    return result.error


def check_key(target: Path, http: HttpClient, name: str, key: str) -> KeyCheck:
    """Ask a provider's account about a key."""
    title = providers.info(name).title
    try:
        settings, _ = load_draft(target, b"", {providers.info(name).key_names[0]: key}, left_out=("notify", "watch"))
        launcher = build_adapters(settings, http, [name], is_patient=False)[name].launcher
        credit = None if launcher is None else launcher.credit_usd()
    except KeyRejected as error:
        return KeyCheck(True, f"{title} refuses the key: {error}")
    except ProviderError as error:
        return KeyCheck(False, f"The key could not be checked: {error}")
    except GpuwatchError as error:
        return KeyCheck(True, str(error))
    balance = "" if credit is None else f", the balance is {dollars(credit)}"
    return KeyCheck(False, f"{title} accepts the key{balance}.")
