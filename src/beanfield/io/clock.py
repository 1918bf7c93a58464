"""The two clocks. Deadlines are monotonic; wall clock is for `created_ns` and for what is written to disk or log.

Only the loops read them, and hand the cores `now_ns`: so the simulator can have its own time.
"""

import time

from beanfield.constants import NEVER_NS

now_ns = time.monotonic_ns  # CLOCK_MONOTONIC, the same clock in every process of the host
wall_ns = time.time_ns


def timeout_ns(deadline_ns: int, now: int) -> int:
    """How long to wait for a deadline: 0 when it has passed, NEVER_NS when there is none."""
    if deadline_ns >= NEVER_NS:
        return NEVER_NS
    return max(deadline_ns - now, 0)
