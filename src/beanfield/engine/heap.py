"""Binary heaps whose items know their position, so that any item can be taken out in O(log n).

Three of the same shape, written out for their comparison: this is the innermost loop of every put and reserve, and a
comparison through a call or a key object costs more than the rest of the sift.
"""

from mypy_extensions import i32, i64, mypyc_attr

from beanfield.engine.job import NOWHERE, Job


def more_urgent(a: Job, b: Job) -> bool:
    """Order of ready jobs within a tube: smaller priority value, then smaller id."""
    if a.priority_code != b.priority_code:
        return a.priority_code < b.priority_code
    return a.id < b.id


def sooner(a: Job, b: Job) -> bool:
    """Order by deadline (or burial number), then id."""
    if a.deadline_ns != b.deadline_ns:
        return a.deadline_ns < b.deadline_ns
    return a.id < b.id


@mypyc_attr(native_class=True)
class ReadyHeap:
    """Jobs by (priority, id)."""

    def __init__(self) -> None:
        self.items: list[Job] = []

    def push(self, job: Job) -> None:
        assert job.heap_at == NOWHERE
        items = self.items
        items.append(job)
        self._up(job, len(items) - 1)

    def remove(self, job: Job) -> None:
        items = self.items
        at: i64 = i64(job.heap_at)
        assert items[at] is job
        job.heap_at = NOWHERE
        last = items.pop()
        if last is not job:
            if at > 0 and more_urgent(last, items[(at - 1) >> 1]):
                self._up(last, at)
            else:
                self._down(last, at)

    def _up(self, job: Job, at: i64) -> None:
        items = self.items
        while at > 0:
            parent_at = (at - 1) >> 1
            parent = items[parent_at]
            if not more_urgent(job, parent):
                break
            items[at] = parent
            parent.heap_at = i32(at)
            at = parent_at
        items[at] = job
        job.heap_at = i32(at)

    def _down(self, job: Job, at: i64) -> None:
        items = self.items
        size: i64 = len(items)
        while True:
            child_at = 2 * at + 1
            if child_at >= size:
                break
            child = items[child_at]
            if child_at + 1 < size:
                other = items[child_at + 1]
                if more_urgent(other, child):
                    child = other
                    child_at += 1
            if not more_urgent(child, job):
                break
            items[at] = child
            child.heap_at = i32(at)
            at = child_at
        items[at] = job
        job.heap_at = i32(at)


@mypyc_attr(native_class=True)
class TimeHeap:
    """Jobs by (deadline_ns, id)."""

    def __init__(self) -> None:
        self.items: list[Job] = []

    def push(self, job: Job) -> None:
        assert job.heap_at == NOWHERE
        items = self.items
        items.append(job)
        self._up(job, len(items) - 1)

    def remove(self, job: Job) -> None:
        items = self.items
        at: i64 = i64(job.heap_at)
        assert items[at] is job
        job.heap_at = NOWHERE
        last = items.pop()
        if last is not job:
            if at > 0 and sooner(last, items[(at - 1) >> 1]):
                self._up(last, at)
            else:
                self._down(last, at)

    def moved(self, job: Job) -> None:
        """Restores the order after the deadline of `job` has changed."""
        at: i64 = i64(job.heap_at)
        if at > 0 and sooner(job, self.items[(at - 1) >> 1]):
            self._up(job, at)
        else:
            self._down(job, at)

    def _up(self, job: Job, at: i64) -> None:
        items = self.items
        while at > 0:
            parent_at = (at - 1) >> 1
            parent = items[parent_at]
            if not sooner(job, parent):
                break
            items[at] = parent
            parent.heap_at = i32(at)
            at = parent_at
        items[at] = job
        job.heap_at = i32(at)

    def _down(self, job: Job, at: i64) -> None:
        items = self.items
        size: i64 = len(items)
        while True:
            child_at = 2 * at + 1
            if child_at >= size:
                break
            child = items[child_at]
            if child_at + 1 < size:
                other = items[child_at + 1]
                if sooner(other, child):
                    child = other
                    child_at += 1
            if not sooner(child, job):
                break
            items[at] = child
            child.heap_at = i32(at)
            at = child_at
        items[at] = job
        job.heap_at = i32(at)
