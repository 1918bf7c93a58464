"""Names of what a client's line can mean: one small integer per command, and five for what is wrong with it.

The parser returns them, the frontend acts on them, counters are lists indexed by them. This file knows nothing else.
"""

from typing import Final

NEED_MORE: Final = 0  # nothing complete is buffered

OP_PUT: Final = 1
OP_PEEK: Final = 2
OP_PEEK_READY: Final = 3
OP_PEEK_DELAYED: Final = 4
OP_PEEK_BURIED: Final = 5
OP_RESERVE: Final = 6
OP_RESERVE_TIMEOUT: Final = 7
OP_RESERVE_JOB: Final = 8
OP_DELETE: Final = 9
OP_RELEASE: Final = 10
OP_BURY: Final = 11
OP_KICK: Final = 12
OP_KICK_JOB: Final = 13
OP_TOUCH: Final = 14
OP_STATS_JOB: Final = 15
OP_STATS_TUBE: Final = 16
OP_STATS: Final = 17
OP_USE: Final = 18
OP_WATCH: Final = 19
OP_IGNORE: Final = 20
OP_LIST_TUBES: Final = 21
OP_LIST_TUBE_USED: Final = 22
OP_LIST_TUBES_WATCHED: Final = 23
OP_QUIT: Final = 24
OP_PAUSE_TUBE: Final = 25

# Faults: each is answered with the reply of the same name, but for OP_BODY_REFUSED (OUT_OF_MEMORY).
OP_BAD_FORMAT: Final = 26
OP_UNKNOWN_COMMAND: Final = 27
OP_JOB_TOO_BIG: Final = 28  # comes when the announced body has been swallowed
OP_EXPECTED_CRLF: Final = 29
OP_BODY_REFUSED: Final = 30  # comes when the rest of a body has been swallowed after refuse_body()

OPS_COUNT: Final = 31  # the length of a list indexed by OP_*

op_names: Final = [
    "need more", "put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout",
    "reserve-job", "delete", "release", "bury", "kick", "kick-job", "touch", "stats-job", "stats-tube", "stats",
    "use", "watch", "ignore", "list-tubes", "list-tube-used", "list-tubes-watched", "quit", "pause-tube",
    "bad format", "unknown command", "job too big", "expected crlf", "body refused",
]  # fmt: skip

assert len(op_names) == OPS_COUNT
