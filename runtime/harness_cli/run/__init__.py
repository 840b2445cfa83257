"""``harness run``: one runtime process per replica on this machine, watched, restarted and shown in a live table."""
