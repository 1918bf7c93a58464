"""What SupervisorCore remembers of one child and of one link. Plain data; core.py decides everything."""

from typing import Final

from beanfield.constants import (
    CRASH_WINDOW_NS,
    CRASHES_MAX,
    EXIT_BAD_DATA,
    EXIT_BAD_OPTION,
    EXIT_DISK,
    NEVER_NS,
    RESTART_NS_MAX,
    RESTART_NS_MIN,
)
from beanfield.ipc.frames import ROLE_OWNER

DOWN: Final = 0
SPAWNED: Final = 1
STARTED: Final = 2
OPENED: Final = 3
SERVING: Final = 4

# What frontends hear about a slot (control.py has the same numbers on the wire).
SLOT_UP: Final = 0
SLOT_RESTARTING: Final = 1
SLOT_UNAVAILABLE: Final = 2

# A process that is still starting is not taken for hung before so many pings, however short --hang-timeout is.
STARTING_PINGS_MIN: Final = 10

START_FAULTS: Final = (EXIT_BAD_OPTION, EXIT_BAD_DATA, EXIT_DISK)


class Child:
    """One role and index: the process that has it now, and the history of those before."""

    def __init__(self, role: int, index: int) -> None:
        self.role = role
        self.index = index
        self.generation = 0
        self.state = DOWN
        self.unanswered = 0  # pings since its last sign of life
        self.killed = False  # told to end; its exit is still to come
        self.accepting = False  # clients
        self.suspect = False  # a frontend that has not answered lately
        self.serving_since_ns = 0
        self.restart_ns = NEVER_NS
        self.backoff_ns = RESTART_NS_MIN
        self.crashes_ns: list[int] = []
        self.unavailable = False  # a slot nobody waits for
        self.out = False  # a frontend that is not started again
        self.fault = ""  # what it said it cannot start for
        self.fault_logged = ""  # how its last exit was logged: the same is not said every few seconds
        self.probe = False  # an owner whose disk has failed
        self.drained = False  # a frontend that has confirmed the running drain

    def crashes_too_often(self, now_ns: int) -> bool:
        """Counts this crash."""
        self.crashes_ns = [at_ns for at_ns in self.crashes_ns if now_ns - at_ns < CRASH_WINDOW_NS]
        self.crashes_ns.append(now_ns)
        return len(self.crashes_ns) >= CRASHES_MAX

    def back_off(self, now_ns: int) -> None:
        """When to start it again: each time later."""
        self.restart_ns = now_ns + self.backoff_ns
        self.backoff_ns = min(self.backoff_ns * 2, RESTART_NS_MAX)

    def spawned(self, generation: int) -> None:
        """A new process has its role and index."""
        self.generation = generation
        self.state = SPAWNED
        self.unanswered = 0
        self.killed = False
        self.accepting = False
        self.drained = False
        self.fault = ""
        self.restart_ns = NEVER_NS

    def patience(self, pings_max: int) -> int:
        """How many pings in a row it may leave unanswered; 0: any number. Starting takes a busy machine its time."""
        return pings_max if self.state != SPAWNED or pings_max == 0 else max(pings_max, STARTING_PINGS_MIN)

    def title(self) -> str:
        """As in its process title."""
        return f"{'owner' if self.role == ROLE_OWNER else 'frontend'} {self.index}"


class Pair:
    """The link of one slot and one frontend."""

    def __init__(self) -> None:
        self.number = 0  # of the last link made
        self.made_ns = 0
        self.up = False
        self.again_ns = NEVER_NS


def ending(code: int, fault: str) -> str:
    """How a child ended, in words that follow its title; `fault`: what it said it cannot start for."""
    how = f" ended with exit code {code}" if code >= 0 else f" was ended by signal {-code}"
    return f"{how}: {fault}" if fault else how
