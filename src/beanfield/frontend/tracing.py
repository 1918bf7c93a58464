"""What `-V -V` prints of the conversation with clients, in beanstalkd's words. Pure; the loop prints.

    <FD command NAME    a command, when its line is known           <FD job ID    the job that a put has made
    >FD reply LINE      a reply's line                              >FD job ID    what follows it; 0: statistics, lists

FrontendState.trace holds what the lines are made from: operations, and bytes for clients. `?` stands for the
descriptor here, which only the loop knows. Malformed commands are shown as `<unknown>`.
"""

from typing import Final

from mypy_extensions import i64

from beanfield.proto import ops

# beanstalkd shows a command as it stands in its table: with a blank where arguments must follow.
_NO_BLANK: Final = (
    ops.OP_PEEK_READY,
    ops.OP_PEEK_DELAYED,
    ops.OP_PEEK_BURIED,
    ops.OP_RESERVE,
    ops.OP_STATS,
    ops.OP_LIST_TUBES,
    ops.OP_LIST_TUBE_USED,
    ops.OP_LIST_TUBES_WATCHED,
    ops.OP_QUIT,
    ops.OP_PAUSE_TUBE,
)
_WITH_BODY: Final = (b"RESERVED", b"FOUND", b"OK")


def command_line(op: i64) -> str:
    """For an operation, or 0 for what is none."""
    if op == 0:
        return "<? command <unknown>"
    return f"<? command {ops.op_names[op]}{'' if op in _NO_BLANK else ' '}"


def reply_lines(text: bytes) -> list[str]:
    """For bytes that begin with a reply; the last one may go on in pieces that are not shown."""
    lines: list[str] = []
    at: i64 = 0
    while at < len(text):
        end: i64 = text.find(b"\r\n", at)
        if end < 0:
            break
        words = text[at:end].split(b" ")
        if len(words) == 2 and (words[0] == b"INSERTED" or words[0] == b"BURIED"):
            lines.append(f"<? job {words[1].decode()}")
        lines.append(f">? reply {text[at:end].decode()}")
        at = end + 2
        if len(words) > 1 and words[0] in _WITH_BODY:
            lines.append(f">? job {words[1].decode() if len(words) == 3 else '0'}")
            at += int(words[len(words) - 1]) + 2
    return lines
