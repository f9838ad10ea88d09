"""What the five source documents ask, each question with the command that answers it.

    python -m benchmarks.sources [--only 1,17-20] [--cheap] [--show] [--write FILE]

`s0.toml` to `s4.toml` hold the questions; docs/sources.md is written from them once every command has printed its
figure.
"""
