"""What the engine tells the outside of its own accord: grants, offers, last words, expired reservations.

A base class without behaviour. An owner's link is a port; so is the recorder of a test. One port serves all sessions
of one link.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.engine.job import Job


@mypyc_attr(native_class=True, allow_interpreted_subclasses=True)
class Port:
    """Called by the engine inside its turn; must not call back into it."""

    def granted(self, session_number: i64, request: i64, job: Job, remaining_ns: i64) -> None:
        """A waiting or taken reserve has its job; the reservation has begun."""
        raise NotImplementedError

    def offered(self, session_number: i64, request: i64, job: Job) -> None:
        """The job is held for this request until it is taken or dropped."""
        raise NotImplementedError

    def empty(self, session_number: i64, request: i64) -> None:
        """No job now; the request waits at its old place."""
        raise NotImplementedError

    def cancelled(self, session_number: i64, request: i64, again: bool) -> None:
        """The last word: there was an instant at which no job was here for this request. It has ended.

        `again`: that instant may not be one at which other owners had no job either, so TIMED_OUT may not be concluded.
        """
        raise NotImplementedError

    def expired(self, session_number: i64, job_id: i64) -> None:
        """The TTR of a reservation of this session has passed; it no longer holds the job."""
        raise NotImplementedError


NOBODY: Final = Port()  # in place of a port that is gone
