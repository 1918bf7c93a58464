"""Bugs that can be put in, to show that the simulation finds them (tests/sim). None of them is in a core.

Those of the owner sit between its link and its core, and change frames or state as a wrong owner (or frontend) would;
those of the log sit in history.py and log.py, beside the journal.
"""

from typing import Any, Final

from beanfield.ipc import frames
from beanfield.owner.core import OwnerCore

IN_THE_OWNER: Final = ("lost-drop", "early-expiry", "ageless-offers", "any-take", "kept-holds", "memory-unchecked")
IN_THE_LOG: Final = ("early-answer", "forgotten-bury", "no-sync", "ids-again", "age-forgotten")
PLANTED: Final = IN_THE_OWNER + IN_THE_LOG

FIRST_FIELD: Final = frames.HEADER_BYTES
WORD: Final = frames.WORD_BYTES
LAST_KEY: Final = (4_294_967_295, (1 << 62), (1 << 62))
MEMORY_FOR_EVER: Final = 1 << 60


class Planted:
    """An owner with a bug between its link and its core."""

    def __init__(self, core: OwnerCore, bug: str) -> None:
        assert bug in IN_THE_OWNER
        self._core = core
        self._bug = bug
        self._seen = 0
        self._created: dict[int, int] = {}  # of jobs that were offered without it
        self._part: dict[int, bytes] = {}  # by link: the begin of a frame
        if bug == "memory-unchecked":
            core.memory_bytes_max = MEMORY_FOR_EVER

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._core, name, value)

    def link_received(self, handle: int, data: bytes, now_ns: int) -> None:
        """At most one frame at a time comes (net.py sees to it); now and then one is not what it was."""
        data = self._part.pop(handle, b"") + data
        if len(data) < frames.HEADER_BYTES or len(data) < int.from_bytes(data[:4], "little"):
            self._part[handle] = data
            return
        opcode = data[4]
        if self._bug == "lost-drop" and opcode == frames.DROP:
            self._seen += 1
            if self._seen % 3 == 0:
                return
        if opcode == frames.TAKE:
            data = self._changed_take(data)
        self._keep_holds(now_ns)
        self._core.link_received(handle, data, now_ns)
        if self._bug == "early-expiry" and opcode == frames.PUT:
            self._seen += 1
            if self._seen % 5 == 0:
                self._expire_one()

    def link_opened(self, handle: int, now_ns: int) -> None:
        self._part.pop(handle, None)
        self._core.link_opened(handle, now_ns)

    def turn(self, now_ns: int) -> None:
        self._keep_holds(now_ns)
        self._core.turn(now_ns)

    def take_outbox(self) -> list[object]:
        outbox = self._core.take_outbox()
        return self._without_age(outbox) if self._bug == "ageless-offers" else outbox

    def _changed_take(self, data: bytes) -> bytes:
        if self._bug == "any-take":
            # The owner that forgets to compare grants whatever it has.
            return data[:FIRST_FIELD] + b"".join(_word(number) for number in LAST_KEY)
        if self._bug == "ageless-offers":
            id_ = int.from_bytes(data[FIRST_FIELD + 2 * WORD : FIRST_FIELD + 3 * WORD], "little")
            return data[: FIRST_FIELD + WORD] + _word(self._created[id_]) + data[FIRST_FIELD + 2 * WORD :]
        return data

    def _without_age(self, outbox: list[object]) -> list[object]:
        """Among jobs of one priority the frontend then takes the one with the smallest id, whatever its age."""
        changed: list[object] = []
        for at in range(0, len(outbox), 2):
            handle, piece = outbox[at], outbox[at + 1]
            assert isinstance(piece, bytes)
            if changed and changed[-2] == handle:
                last = changed[-1]
                assert isinstance(last, bytes)
                changed[-1] = last + piece
            else:
                changed += [handle, piece]
        for at in range(1, len(changed), 2):
            data = changed[at]
            assert isinstance(data, bytes)
            changed[at] = self._rewritten(bytearray(data))
        return changed

    def _rewritten(self, data: bytearray) -> bytes:
        at = 0
        while at < len(data):
            if data[at + 4] == frames.OFFER:
                field = at + FIRST_FIELD + WORD
                id_ = int.from_bytes(data[field + WORD : field + 2 * WORD], "little")
                self._created[id_] = int.from_bytes(data[field : field + WORD], "little")
                data[field : field + WORD] = _word(0)
            at += int.from_bytes(data[at : at + 4], "little")
        return bytes(data)

    def _keep_holds(self, now_ns: int) -> None:
        if self._bug != "kept-holds":
            return
        for note in self._core.engine.holds:
            if note.until_ns <= now_ns and note.runs():
                note.until_ns = note.session.hold_until_ns = now_ns + 1

    def _expire_one(self) -> None:
        """Some session's reservation ends before its time."""
        engine = self._core.engine
        if engine.reserved.items:
            engine.reserved.items[0].deadline_ns = 0


def _word(number: int) -> bytes:
    return number.to_bytes(WORD, "little")
