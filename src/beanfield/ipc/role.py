"""What the loop around a role's core calls: the part of their interface that owner's and frontend's cores share.

The callbacks for received bytes differ by role; the reactor calls them by name.
"""

from mypy_extensions import mypyc_attr


@mypyc_attr(native_class=True, allow_interpreted_subclasses=True)
class RoleCore:
    """A base class without behaviour."""

    def turn(self, now_ns: int) -> None:
        """Everything that is due by itself, and the end of this turn's output."""
        raise NotImplementedError

    def next_deadline_ns(self) -> int:
        """When turn() must be called again at the latest though nothing comes; 0: at once; NEVER_NS: not."""
        raise NotImplementedError

    def take_outbox(self) -> list[object]:
        """[handle, bytes, handle, bytes, ...], to be flushed."""
        raise NotImplementedError

    def take_actions(self) -> list[int]:
        """[ACT_*, handle, ...], to be carried out after the flush."""
        raise NotImplementedError
