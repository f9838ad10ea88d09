"""Who may do what through HTTP: passwords, tokens, sessions, hosts and proxies."""
