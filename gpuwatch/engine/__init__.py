"""The daemon's periodic tasks, written against ports: hunt, sweep, rent, reconcile, guard, deliver."""
