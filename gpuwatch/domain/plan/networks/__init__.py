"""Models that are no language models: diffusion, vision, speech; their weights, arithmetic and memory. Pure."""
