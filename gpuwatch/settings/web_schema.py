"""The schema of `[web]`, by pydantic."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, WithJsonSchema, model_validator

from gpuwatch.domain.setup.fields import Line, Switch, Table, Words
from gpuwatch.secret import Secret
from gpuwatch.settings.web import DEFAULT_LISTEN, WebSettings, WebToken, split_listen

HIDDEN = {"type": "string", "writeOnly": True}
_HASH = re.compile(r"scrypt\$\d{1,2}\$\d{1,2}\$\d{1,2}\$[0-9a-f]{16,128}\$[0-9a-f]{64,128}")
_HOST = re.compile(r"\w([\w.-]*\w)?", re.ASCII)
_MIN_TOKEN_LENGTH = 16  # characters: fewer can be guessed


def _listen(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")  # noqa: TRY004 - pydantic turns ValueErrors into faults
    split_listen(value)
    return value.strip()


def _password_hash(value: Any) -> str | None:
    if isinstance(value, str) and not value.strip():
        return None
    if not isinstance(value, str) or not _HASH.fullmatch(value.strip()):
        raise ValueError("expected the output of `gpuwatch web --hash-password`")
    return value.strip()


def _token(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]+", value.strip()):
        raise ValueError("expected text without spaces")
    if len(value.strip()) < _MIN_TOKEN_LENGTH:
        raise ValueError(f"expected at least {_MIN_TOKEN_LENGTH} characters, such as from: openssl rand -hex 32")
    return value.strip()


def _hosts(values: tuple[str, ...]) -> tuple[str, ...]:
    if not all(_HOST.fullmatch(value) or _is_address(value) for value in values):
        raise ValueError('expected host names without scheme and port, such as ["gpu.example.org"]')
    return values


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _proxies(value: Any) -> Any:
    networks = [value] if isinstance(value, str) else value
    for network in networks if isinstance(networks, list | tuple) else ():
        try:
            ipaddress.ip_network(network, strict=False)
        except (ValueError, TypeError):
            raise ValueError('expected addresses or networks, such as ["10.0.0.1", "172.16.0.0/12"]') from None
    return networks


class TokenTable(Table):
    """One of `tokens`."""

    name: Line = Field(description="Name in the log.")
    token: Annotated[SecretStr, BeforeValidator(_token), WithJsonSchema(HIDDEN)] | None = Field(
        default=None, description="Secret; prefer a file: token_file."
    )
    token_file: Line | None = Field(default=None, description="File with the token.")
    scopes: tuple[Literal["read", "approve", "manage"], ...] = Field(
        min_length=1, description="read: all pages; approve: answer approvals; manage: stop, pause, resume, silence."
    )

    @model_validator(mode="after")
    def _one_source(self) -> TokenTable:
        if (self.token is None) == (self.token_file is None):
            raise ValueError("expected either token or token_file")
        return self


class WebTable(Table):
    """`[web]`."""

    enabled: Switch = Field(default=False, description="true: `gpuwatch run` also serves the page and the API.")
    listen: Annotated[str, BeforeValidator(_listen)] = Field(
        default=DEFAULT_LISTEN,
        description="Address and port. An address other than loopback requires password_hash or tokens.",
    )
    password_hash: Annotated[SecretStr | None, BeforeValidator(_password_hash), WithJsonSchema(HIDDEN)] = Field(
        default=None, description="Secret. Output of `gpuwatch web --hash-password`."
    )
    tokens: tuple[TokenTable, ...] = Field(
        default=(), description="Secret. Bearer tokens: { name, token or token_file, scopes }."
    )
    trusted_hosts: Annotated[Words, AfterValidator(_hosts)] = Field(
        default=("localhost",), description="Accepted names in the Host header, in addition to loopback."
    )
    trusted_proxies: Annotated[tuple[str, ...], BeforeValidator(_proxies)] = Field(
        default=(), description="Addresses or networks of proxies whose X-Forwarded-* headers are trusted."
    )
    tls_certificate: Line | None = Field(default=None, description="PEM file with the certificate and its chain.")
    tls_key: Line | None = Field(default=None, description="PEM file with its key.")

    def value(self, secret_at: Callable[[tuple[str, ...], str], Secret] = lambda _, text: Secret(text)) -> WebSettings:
        """Return the plain value.

        Args:
            secret_at: (key, text) → the secret, which knows its place.
        """
        return WebSettings(
            enabled=self.enabled,
            listen=self.listen,
            password_hash=secret_at(("web", "password_hash"), self.password_hash.get_secret_value())
            if self.password_hash
            else None,
            tokens=tuple(
                WebToken(
                    name=token.name,
                    token=secret_at(("web", "tokens"), token.token.get_secret_value()) if token.token else None,
                    token_file=token.token_file,
                    scopes=tuple(token.scopes),
                )
                for token in self.tokens
            ),
            trusted_hosts=self.trusted_hosts,
            trusted_proxies=self.trusted_proxies,
            tls_certificate=self.tls_certificate,
            tls_key=self.tls_key,
        )
