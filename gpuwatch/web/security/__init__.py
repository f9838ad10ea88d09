"""Authentication and authorisation over HTTP: passwords, tokens, sessions, hosts and proxies."""
