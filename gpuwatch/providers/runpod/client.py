"""The HTTP client of RunPod: REST v2 under `/v2`, and GraphQL. Only v2 has a quota; every v2 request counts."""

from __future__ import annotations

from typing import Any, Final

from gpuwatch.errors import OrderRateLimited, RateLimited
from gpuwatch.ports import ProviderSettings
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.runpod.error_mapping import ordering_error, reading_error
from gpuwatch.providers.runpod.quota import Quota
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.rate_limiter import WaitStopped

GRAPHQL: Final = "graphql"  # a class of requests that has no quota
_MAX_WAIT_S: Final = 60.0  # maximum wait for a quota window; a longer wait is reported as an error
_URGENT_KINDS: Final = frozenset({"list", "order"})


class RunpodClient(ApiClient):
    """One account at RunPod: its address, key, rate limit and quota."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools, reading=reading_error, ordering=ordering_error)
        self._quota = Quota(tools.monotonic)

    def acquire(self, kind: str, urgent: bool = False) -> None:
        """Wait for the rate limit, and until the quota allows one more request.

        Raises:
            WaitStopped: gpuwatch is stopping.
            RateLimited: the quota is used up for longer than a minute.
        """
        super().acquire(kind, urgent)
        waited_s = 0.0
        while kind != GRAPHQL and (remaining_s := self._quota.take(kind in _URGENT_KINDS)) > 0:
            if waited_s + remaining_s > _MAX_WAIT_S:
                raise RateLimited(f"{self.name}: its quota of requests is used up for {remaining_s:.0f} s", remaining_s)
            self.tools.sleep(remaining_s)
            waited_s += remaining_s
            if self.tools.stop.is_set():
                raise WaitStopped

    def on_reply(self, reply: HttpReply, kind: str) -> None:
        """Read the remaining quota from the headers, which every v2 answer has."""
        if kind != GRAPHQL:
            self._quota.on_reply(reply.status, reply.headers)

    def order(
        self, method: str, path: str, body: object = None, *, kind: str = "order", deadline_s: float | None = None
    ) -> HttpReply:
        """Like `ApiClient.order`; sends nothing if the quota is used up. Raises OrderError."""
        try:
            return super().order(method, path, body, kind=kind, deadline_s=deadline_s)
        except RateLimited as error:
            raise OrderRateLimited(f"{error}; nothing was sent", error.retry_after_s) from error

    def graphql(self, query: str) -> Any:
        """Return the decoded answer to a GraphQL query. Raises ProviderError."""
        return self.query("/graphql", {"query": query}, kind=GRAPHQL)
