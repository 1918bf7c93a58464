"""The exception families. A client's fault is a reply and never one of these; a bug is an AssertionError.

Knows nothing of the rest of the project.
"""


class LinkFault(Exception):
    """The other end of a link broke the frame contract: the link closes, the process lives."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StartupError(Exception):
    """The process cannot start as asked; says why in one sentence and carries its exit code."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
