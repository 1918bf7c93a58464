"""A kick of many jobs, which shares turns with other sessions. Only what is left of it; commands.py moves the jobs."""

from mypy_extensions import i64, mypyc_attr

from beanfield.owner.link import OwnerLink
from beanfield.owner.seat import Seat


@mypyc_attr(native_class=True)
class KickTask:
    """A kick that is not through: `left` more of the jobs that were there when it began."""

    def __init__(self, link: OwnerLink, seat: Seat, request: i64, buried: bool, left: i64) -> None:
        self.link: OwnerLink = link
        self.seat: Seat = seat
        self.request: i64 = request
        self.buried: bool = buried
        self.left: i64 = left
        self.kicked: i64 = 0
