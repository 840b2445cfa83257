"""The command ``harness``: serve on one machine, send load, measure profiles, check files.

Commands hold no logic of their own beyond talking to a person: decisions live in the packages they call.
"""
