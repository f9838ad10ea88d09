"""The pure rules of gpuwatch: values in, values out; no I/O, no clock, no randomness, no log."""
