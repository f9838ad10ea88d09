"""The HTTP client: httpx, with a deadline for a whole exchange, a cap on decoded bytes, and whether a request was sent.

`client` imports httpx, and is itself imported only when a request is sent; `wire` alone imports httpcore.

The environment: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` are honoured (never for loopback),
`SSL_CERT_FILE` and `SSL_CERT_DIR` replace the trusted certificates. `.netrc` is not read, cookies are not kept,
and nothing turns certificate checks off.
"""
