"""The life of a launch: admission, events, states, decisions of its owner. Pure."""
