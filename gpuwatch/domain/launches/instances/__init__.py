"""The instance of a launch: when it must end, whether it is gone, which machines are avoided. Pure."""
