"""httpx for servers on loopback: no certificates to load, and enough time for a busy machine."""

from __future__ import annotations

import ssl
from typing import Any

import httpx

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loading every trusted certificate takes 25 ms


def client(**options: Any) -> httpx.Client:
    """Return a client; its options are those of httpx."""
    return httpx.Client(verify=NO_CERTIFICATES, **{"timeout": 60.0} | options)


def request(method: str, url: str, **options: Any) -> httpx.Response:
    """Send one request."""
    with client() as http:
        return http.request(method, url, **options)


def get(url: str, **options: Any) -> httpx.Response:
    """Send one GET request."""
    return request("GET", url, **options)


def items(url: str, kind: str, **headers: str) -> list[dict[str, Any]]:
    """Return the items of one list of the API, such as "approvals"."""
    return list(get(f"{url}/api/v1/{kind}", headers=headers).json()["items"])
