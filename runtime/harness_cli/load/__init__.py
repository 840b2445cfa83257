"""Load generator: open-loop and closed-loop traffic with deadlines against any Open Inference Protocol server.

``harness_cli.load.engine.run_load`` is the library function; importing this package alone loads nothing heavy.
"""
