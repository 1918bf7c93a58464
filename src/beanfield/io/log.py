"""Log lines: plain text on stderr, with the time and who says it."""

import sys
import time


def log(role: str, text: str) -> None:
    """One line, written at once, so that lines of several processes do not mix. A lost stderr stops no server."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        sys.stderr.write(f"{stamp} {role}: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
