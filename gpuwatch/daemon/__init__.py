"""The daemon as a process: its scheduler, its signals, its logs, the service manager's socket."""
