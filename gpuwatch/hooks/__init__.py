"""What the owner attached to a launch: a command or a signed webhook."""
