"""What a command may end with.

CliError
└── a user's mistake or a state of the world: one plain line, never a traceback; ``exit_code`` says which kind
"""

from __future__ import annotations

USAGE = 2
"""The command line or a file it names cannot be used."""
FAILED = 1
"""The command was understood and did not succeed."""
INVALID_RESULT = 3
"""A measurement ended, but must not be trusted."""


class CliError(Exception):
    """Ends a command with one line. The message names field, limit and value."""

    def __init__(self, message: str, *, exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
