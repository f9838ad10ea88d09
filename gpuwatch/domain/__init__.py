"""The rules of gpuwatch, pure: values in, values out; no I/O, no clock, no randomness, no log."""
