"""What the machine around the daemon gives and takes: the service manager's notifications, and logs."""
