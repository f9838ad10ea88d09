"""The account: its tenant, its project in each region, and the subnet of a project."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from gpuwatch.errors import KeyRejected, PayloadChanged
from gpuwatch.ports.settings import Option
from gpuwatch.providers.nebius.client import LIST_PROJECTS, LIST_SUBNETS, LIST_TENANTS, PROVIDER, NebiusClient
from gpuwatch.providers.toolkit.api_client import TtlCache

_TTL_S: Final = 600.0  # a new project or subnet is found after this time
_ID: Final = re.compile(r"[a-z][a-z0-9-]{1,80}")
_REGION: Final = re.compile(r"[a-z0-9-]{1,30}")


class NebiusAccount:
    """What the credentials see. Creates nothing."""

    def __init__(self, client: NebiusClient, options: Mapping[str, Option]) -> None:
        self._client = client
        self._tenant = options.get("tenant")
        self._projects, self._subnets = _by_region(options.get("projects")), _by_region(options.get("subnets"))
        self._cache: TtlCache[object] = TtlCache(_TTL_S, client.tools.monotonic)

    def tenant(self) -> str:
        """Return the tenant's id. Raises ProviderError; KeyRejected: there is none, or the settings must name one."""
        if isinstance(self._tenant, str):
            return self._tenant
        found = self._cache.get(lambda: [_id(page.metadata.id) for page in self._client.pages(LIST_TENANTS)], "tenants")
        assert isinstance(found, list)
        if len(found) != 1:
            raise KeyRejected(
                f"{PROVIDER}: the credentials see {len(found)} tenants; name one in options.tenant of "
                f"[providers.{PROVIDER}.options]"
            )
        return str(found[0])

    def projects(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return region → (id, name) of every project there. Raises ProviderError."""

        def fetch() -> object:
            found: dict[str, list[tuple[str, str]]] = {}
            for page in self._client.pages(LIST_PROJECTS, parent_id=self.tenant()):
                if _REGION.fullmatch(page.spec.region):
                    found.setdefault(page.spec.region, []).append((_id(page.metadata.id), str(page.metadata.name)))
            return found

        cached = self._cache.get(fetch, "projects")
        assert isinstance(cached, dict)
        return cached

    def project(self, region: str) -> str | None:
        """Return the project to rent in: from the settings, the only one, or the default one. Raises ProviderError."""
        return self._projects.get(region) or _single_or_default(self.projects().get(region, ()), "default-")

    def subnet(self, region: str, project: str) -> str | None:
        """Return the subnet of a project, found in the same way. Raises ProviderError."""
        if region in self._subnets:
            return self._subnets[region]

        def fetch() -> object:
            return [
                (_id(page.metadata.id), str(page.metadata.name))
                for page in self._client.pages(LIST_SUBNETS, parent_id=project)
            ]

        cached = self._cache.get(fetch, project)
        assert isinstance(cached, list)
        return _single_or_default(cached, "default-subnet")


def _single_or_default(candidates: Sequence[tuple[str, str]], default: str) -> str | None:
    default_ids = [one for one, name in candidates if name.startswith(default)]
    ids = [one for one, _ in candidates]
    return ids[0] if len(ids) == 1 else default_ids[0] if len(default_ids) == 1 else None


def _by_region(value: Option) -> dict[str, str]:
    return dict(one.split("=", 1) for one in value) if isinstance(value, tuple) else {}


def _id(value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise PayloadChanged(f"{PROVIDER}: an id has an unexpected format")
    return value
