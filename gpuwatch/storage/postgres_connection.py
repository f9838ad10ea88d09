"""A connection to PostgreSQL that waits for no answer for ever.

A firewall that forgets a connection, or a network that swallows packets, reports nothing: a query would wait until the
kernel gives up, which behind a proxy that still acknowledges it never does. Server-side timeouts do not help there.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus


class BoundedConnection(psycopg.Connection[Any]):
    """Ends itself if an answer takes too long; the pool then opens a new one."""

    answer_within_s = 0.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """`psycopg.Connection.wait`, never without a limit. Raises psycopg.OperationalError."""
        limit_s = self.answer_within_s if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.OperationalError as error:
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise  # the server's own answer
            self.pgconn.finish()  # in the middle of a query it can be used for nothing else
            raise psycopg.OperationalError(f"no answer within {limit_s:.0f} s") from error


def connect_bounded(answer_within_s: float, *args: Any, **parameters: Any) -> BoundedConnection:
    """Connect as `psycopg.connect` does."""
    connection = BoundedConnection.connect(*args, **parameters)
    connection.answer_within_s = answer_within_s
    return connection
