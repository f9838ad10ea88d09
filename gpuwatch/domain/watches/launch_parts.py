"""Tables and field types around a launch: references, ports, bids, registries, volumes, hooks, relocation."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from gpuwatch.domain.setup.fields import Line, Measure, Number, Share, Span, SpecTable, Table, Usd, seconds
from gpuwatch.domain.watches.launch_text import (
    MAX_ONSTART,
    OWN_VARIABLES,
    check_onstart,
    check_secret,
    check_url,
    check_value,
    check_word,
)
from gpuwatch.domain.watches.watch import BidSpec, HandoverSpec, HookSpec, RegistrySpec, RelocateSpec, VolumeSpec
from gpuwatch.secret import Secret

LABEL_EXTRA_MAX = 38  # accepted, because older labels had that much space
MAX_HOOK_S = 300.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_PORT = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(/tcp|/udp)?")


class Reference(Table):
    """`{ from_env = "NAME" }` or `{ from_file = "/run/secrets/name" }`: text that is not written in the file."""

    from_env: Line | None = Field(default=None, description="Environment variable with the text.")
    from_file: Line | None = Field(
        default=None, description="File with the text; a relative path is relative to the settings file."
    )


def _text_or_secret(value: Any, check: Callable[[str], str]) -> str | Secret:
    """A text, checked; valid references have already become checked secrets."""
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004 pydantic turns ValueErrors into faults
            'expected text in quotes, { from_env = "NAME" } or { from_file = "/run/secrets/name" }'
        )
    return check(value)


def _secret(check: Callable[[str], str]) -> PlainValidator:
    """The validator of a secret that is written as text or by reference."""

    def read(value: Any) -> Secret:
        found = _text_or_secret(value, check)
        return found if isinstance(found, Secret) else Secret(found)

    return PlainValidator(read, json_schema_input_type=_TEXT_OR)


def _variable(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("expected names of environment variables: letters, digits and _")
    if value in OWN_VARIABLES:
        raise ValueError("reserved name: gpuwatch sets this variable itself")
    return value


def _port(value: Any) -> str:
    text = str(value) if isinstance(value, int) else value
    found = _PORT.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found or not all(1 <= int(port) <= 65_535 for port in found.group(1, 2) if port):
        raise ValueError('expected a port, such as 8000, "8080:8000" (outside:inside) or "53/udp"')
    inside = str(int(found[2])) + ("/udp" if found[3] == "/udp" else "")
    return f"{int(found[1])}:{inside}" if found[1] else inside


def _ports(value: Any) -> Any:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return [value]
    return value


def _label(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isascii() or not value.isprintable():
        raise ValueError("expected one non-empty line of printable ASCII")
    if len(value.strip()) > LABEL_EXTRA_MAX:
        raise ValueError(f"expected at most {LABEL_EXTRA_MAX} characters")
    return value.strip()


def _mount(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"/[A-Za-z0-9._/-]+", value) or ".." in value.split("/"):
        raise ValueError('expected an absolute folder on the instance, such as "/data"')
    return value


def _hook_span(value: Any) -> float:
    found = seconds(value)
    if not 1 <= found <= MAX_HOOK_S:
        raise ValueError("expected a duration from 1s to 5m")
    return found


def _hook(value: Any) -> Any:
    if isinstance(value, str):
        return {"command": value}
    if not isinstance(value, (dict, HookTable)):
        raise ValueError('expected a command in quotes, or { url = "https://…", secret = "…" }')  # noqa: TRY004
    return value


def shell_command(value: Any) -> str:
    """A command that is not empty. Raises ValueError."""
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise ValueError("expected a non-empty shell command in quotes")
    return value


def _script(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004
    return check_onstart(value)


_HOOK_SPAN = {"type": "string", "examples": ["30s", "2m"]}
_TEXT_OR = str | Reference
HookSpan = Annotated[float, BeforeValidator(_hook_span), WithJsonSchema(_HOOK_SPAN)]
EnvName = Annotated[str, BeforeValidator(_variable)]
EnvValue = Annotated[
    str | Secret,
    PlainValidator(lambda value: _text_or_secret(value, check_value), json_schema_input_type=_TEXT_OR),
]
Password = Annotated[Secret, _secret(check_word)]
Signature = Annotated[Secret, _secret(check_secret)]
HookUrl = Annotated[Secret, _secret(check_url)]
Word = Annotated[Line, BeforeValidator(lambda value: check_word(value) if isinstance(value, str) else value)]
Port = Annotated[str, BeforeValidator(_port, json_schema_input_type=int | str)]
Ports = Annotated[
    tuple[Port, ...], BeforeValidator(_ports, json_schema_input_type=int | str | list[int | str]), Field(max_length=64)
]
VolumeId = Annotated[
    Line, BeforeValidator(lambda value: str(value) if type(value) is int else value, json_schema_input_type=int | str)
]
Percent = Annotated[Number, Field(gt=0, le=100)]
Label = Annotated[str, BeforeValidator(_label), WithJsonSchema({"type": "string", "maxLength": LABEL_EXTRA_MAX})]
Script = Annotated[str, BeforeValidator(_script), WithJsonSchema({"type": "string", "maxLength": MAX_ONSTART})]


class BidTable(SpecTable):
    """`bid = { max = 1.20, step = 0.05 }`."""

    max: Usd = Field(description="Maximum bid in USD per GPU-hour, commission included.")
    step: Usd = Field(
        default=Decimal("0.05"), description="Increment of a bid after it was outbid, in USD per GPU-hour."
    )

    @model_validator(mode="after")
    def _step_fits(self) -> BidTable:
        if self.step > self.max and "step" in self.model_fields_set:
            raise ValueError("expected step to be at most max")
        return self

    def value(self) -> BidSpec:
        """Return the value that the engine uses."""
        return BidSpec(max_usd_gpu_hour=self.max, step_usd_gpu_hour=self.step)


class RegistryTable(SpecTable):
    """`registry = { server = "ghcr.io", username = "me", password = { from_env = "GHCR_TOKEN" } }`."""

    server: Word = Field(description="Host of the private registry, such as ghcr.io.")
    username: Word = Field(description="User at the registry.")
    password: Password = Field(description="Secret: password or token of the user, or a reference to it.")

    def value(self) -> RegistrySpec:
        """Return the value that the engine uses."""
        return RegistrySpec(server=self.server, username=self.username, password=self.password)


class VolumeTable(SpecTable):
    """`volume = { mount = "/data", volume_id = "123" }`."""

    mount: Annotated[str, BeforeValidator(_mount)] = Field(description="Mount point on the instance.")
    volume_id: VolumeId = Field(
        description="The provider's id of an existing volume; with size_gb, of the volume offer for a new one."
    )
    size_gb: Annotated[Measure, Field(ge=1)] | None = Field(
        default=None, description="Size of a new volume in GB, on the machine of that volume offer."
    )

    def value(self) -> VolumeSpec:
        """Return the value that the engine uses."""
        return VolumeSpec(**self.fields_of(VolumeSpec))


class HookTable(SpecTable):
    """A shell command, or `{ url = "https://…", secret = "…" }`."""

    command: Annotated[str, BeforeValidator(shell_command)] | None = Field(
        default=None, repr=False, description="Shell command that receives the launch as JSON on standard input."
    )
    url: HookUrl | None = Field(default=None, description="URL that receives the launch as JSON, or a reference.")
    secret: Signature | None = Field(default=None, description="Secret that signs the message, or a reference.")

    @model_validator(mode="after")
    def _one_kind(self) -> HookTable:
        if (self.command is None) == (self.url is None):
            raise ValueError('expected a command in quotes, or { url = "https://…", secret = "…" }')
        if self.secret is not None and self.url is None:
            raise ValueError("expected secret only with url")
        return self

    def value(self) -> HookSpec:
        """Return the value that the engine uses."""
        return HookSpec(command=self.command, url=self.url, secret=self.secret)


Hook = Annotated[HookTable, BeforeValidator(_hook, json_schema_input_type=str | HookTable)]


class HandoverTable(SpecTable):
    """`handover = { to = "skypilot", run = "python train.py" }`."""

    to: Literal["skypilot", "dstack"] = Field(description="Orchestrator of the task.")
    run: Line = Field(description="Command to run on the machine.")

    def value(self) -> HandoverSpec:
        """Return the value that the engine uses."""
        return HandoverSpec(to=self.to, run=self.run)


class RelocateTable(SpecTable):
    """`relocate = { min_saving = "15%", after = "2h" }`."""

    min_saving: Share = Field(
        default=Decimal("0.15"), description="Minimum saving on the remaining cost, including set-up (default 15%)."
    )
    after: Span = Field(default=7200.0, description="Minimum runtime of a launch before it is reported (default 2h).")

    def value(self) -> RelocateSpec:
        """Return the value that the engine uses."""
        return RelocateSpec(min_saving=float(self.min_saving), after_s=self.after)
