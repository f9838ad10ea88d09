"""Mail addresses: as the settings give them, in a header, and in the envelope."""

from __future__ import annotations

import re
from email.headerregistry import Address
from email.utils import getaddresses, parseaddr

_ADDRESS = re.compile(r'[^\s@,;:<>()"\\]+@[^\s@,;<>()"\\]+')


def parse_address(value: object) -> str:
    """One address, with or without a name. Raises ValueError.

    Several in one text are an error: the server would get only the first.
    """
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError('expected a mail address, such as "me@example.org"')
    found = [address for _, address in getaddresses([value])]
    if len(found) > 1:
        raise ValueError("expected one mail address in each text, and a name with a comma in quotes")
    if not _ADDRESS.fullmatch(found[0]):
        raise ValueError('expected a mail address, such as "me@example.org"')
    try:
        envelope_address(value)
    except UnicodeError:
        raise ValueError("expected a domain name behind the @ of the mail address") from None
    return value.strip()


def envelope_address(text: str) -> str:
    """The address alone; a domain in other letters as DNS has it, so that every server accepts it."""
    local, at, domain = parseaddr(text)[1].rpartition("@")
    return f"{local}{at}{_in_dns(domain)}"


def header_address(text: str) -> Address:
    """Name and address for a header, which encodes the name if it is not ASCII."""
    name, address = parseaddr(text)
    local, at, domain = address.rpartition("@")
    return Address(name, username=local, domain=_in_dns(domain)) if at else Address(name, username=address)


def _in_dns(domain: str) -> str:
    return domain if domain.isascii() else domain.encode("idna").decode("ascii")
