"""The architectures of models, by their config.json: layers, weights, caches. Pure."""
