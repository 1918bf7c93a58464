"""What SupervisorCore wants done. Plain data; supervisor/main.py carries it out."""

from typing import Final

DO_SPAWN: Final = 1  # role, index, generation, on: it must try its disk first
DO_KILL: Final = 2  # role, index, generation
DO_STOP: Final = 3  # role, index: the message
DO_PING: Final = 4  # role, index, number
DO_OPEN: Final = 5  # index, number: offset_ns
DO_LINK: Final = 6  # index: slot, peer: frontend, number
DO_SLOT_STATE: Final = 7  # index: frontend, peer: slot, number: state
DO_ACCEPT: Final = 8  # index: frontend
DO_DRAIN: Final = 9  # index: frontend, number, on: the message
DO_SHOW: Final = 10  # role, index, generation, number: bits of the live word in the supervisor's page
DO_DRAINING: Final = 11  # on: what `stats` shows, confirmed by all
DO_SERVING: Final = 12  # the server has started
DO_CLOSE_LISTENERS: Final = 13
DO_LOG: Final = 14  # text
DO_EXIT: Final = 15  # number: exit code

SHOW_LIVE: Final = 1  # its gauges count
SHOW_ACCEPTING: Final = 2  # its connection count holds others back from accepting


class Action:
    """One thing to do: a kind and the fields that its line above names."""

    def __init__(
        self,
        kind: int,
        role: int = 0,
        index: int = 0,
        generation: int = 0,
        peer: int = 0,
        number: int = 0,
        on: bool = False,
        text: str = "",
    ) -> None:
        self.kind = kind
        self.role = role
        self.index = index
        self.generation = generation
        self.peer = peer
        self.number = number
        self.on = on
        self.text = text
