"""The hooks of a launch: a command of the owner, or a signed webhook."""
