"""A frontend's core with its owner's core behind it, in one process: `--frontends 0`. Pure.

To the loop it is a frontend's core. The frames between the two are those of a link, byte for byte, handed over in
memory at the end of each turn until neither has anything to say; neither core knows that there is no socket between.
This file knows both cores' interfaces and nothing of what frames mean.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.frontend.core import FrontendCore
from beanfield.frontend.slots import SlotLink
from beanfield.frontend.state import FrontendConfig
from beanfield.ipc.actions import ACT_CLOSE
from beanfield.owner.core import OwnerCore
from beanfield.pages import PageReader

# The two ends of the link between the cores. No reactor gives such handles.
FRONTEND_END: Final = 1 << 40
OWNER_END: Final = 0
# Rounds of frames in one turn; what is left then is the next turn's, after clients have been polled.
ROUNDS_MAX: Final[i64] = 16


@mypyc_attr(native_class=True)
class CombinedCore(FrontendCore):
    """Serves clients from the only slot, slot 0."""

    def __init__(self, config: FrontendConfig, pages: PageReader, owner: OwnerCore) -> None:
        super().__init__(config, pages)
        assert config.topology.slots == 1
        self.owner: OwnerCore = owner
        self.left: bool = False  # frames stand in the link's writer after the last round

    def connect(self, now_ns: int) -> None:
        """Makes the link between the two; it is up after the next turn. Once: it has no end but that of the process."""
        self.owner.link_opened(OWNER_END, now_ns)
        self.link_opened(0, FRONTEND_END, now_ns)

    def turn(self, now_ns: int) -> None:
        super().turn(now_ns)
        owner = self.owner
        link = self.links[0]
        rounds: i64 = 0
        while True:
            owner.turn(now_ns)
            self._take_replies(now_ns)
            rounds += 1
            if not self.left or rounds == ROUNDS_MAX:
                break
            self._send_frames(link)
        # A pause means nothing here: what the owner has not executed, it goes on with in its next turn.
        assert ACT_CLOSE not in owner.take_actions()[::2], "the owner refuses the frontend in its own process"

    def _send_frames(self, link: SlotLink) -> None:
        """Over to the owner at once, instead of into the outbox."""
        for piece in link.take_frames():
            self.owner.link_received(OWNER_END, piece, self.now_ns)

    def _take_replies(self, now_ns: i64) -> None:
        frames = self.owner.take_outbox()
        for at in range(1, len(frames), 2):
            piece = frames[at]
            assert isinstance(piece, bytes)
            self.link_received(FRONTEND_END, piece, now_ns)
        # What a socket would not have taken is what the owner has not read: without this report, sessions held back
        # would never go on, and an owner that waits for its disk would be handed everything that clients send.
        link = self.links[0]
        unread_bytes = self.owner.unread_bytes(OWNER_END)
        if link.held or unread_bytes != link.unsent_bytes:
            self.link_unsent(FRONTEND_END, unread_bytes, now_ns)
        self.left = link.has_frames()

    def take_outbox(self) -> list[object]:
        """As a frontend's; with the replies that the journal has let go since the turn."""
        self._take_replies(self.now_ns)
        return super().take_outbox()

    def next_deadline_ns(self) -> int:
        # Sessions to be looked at again may come with the owner's replies, behind the frontend's part of the turn.
        if self.left or len(self.revisit) != 0:
            return 0
        mine = super().next_deadline_ns()
        owners = self.owner.next_deadline_ns()
        return mine if mine < owners else owners
