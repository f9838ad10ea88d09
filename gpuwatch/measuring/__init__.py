"""Measurements of this machine: its GPU with PyTorch, if that is installed, its disk and its network."""
