"""``harness profile``: measures l(b) of a model and shows it."""
