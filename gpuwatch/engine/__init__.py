"""The beats: hunt, sweep, act, follow, reconcile, deliver. Written against ports; joined by rows, not by calls."""
