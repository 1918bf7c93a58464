"""All jobs of a slot by id. An id is dense within its slot, so pages indexed by sequence beat a dictionary of jobs.

A page is freed with its last job, but for the newest one, which the next put would only make again. Pages are found
through a dictionary, because sequences may have wide gaps (leases that were skipped), with the page used last at hand.

A slot uses a sequence once, whatever the partition. Only `beanfield resize` can bring jobs of one sequence together:
they were put into different slots, and ids are kept. The second of them is a twin, in a dictionary beside the pages.
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from beanfield.engine.job import Job

PAGE_JOBS: Final = 1_024
PAGE_SHIFT: Final[i64] = 10
PAGE_MASK: Final[i64] = PAGE_JOBS - 1


def _id_of(job: Job) -> int:
    return job.id


@mypyc_attr(native_class=True)
class Page:
    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.jobs: list[Job | None] = [None] * PAGE_JOBS
        self.count: i64 = 0


@mypyc_attr(native_class=True)
class JobTable:
    """Jobs by id = sequence * partition_count + partition + 1."""

    def __init__(self, partition_count: i64) -> None:
        assert partition_count >= 1
        self.partition_count: i64 = partition_count
        self.count: i64 = 0
        self.pages: dict[int, Page] = {}
        nothing = Page(-1)  # stands for "no page"; never in `pages`
        self.recent: Page = nothing  # the page used last
        self.newest: Page = nothing  # the page with the largest number ever made
        self.twins: dict[int, Job] = {}  # by id; another job stood in their place when they came

    def find(self, id: i64) -> Job | None:
        """The job, or None. Any id >= 1 may be asked for."""
        sequence = (id - 1) // self.partition_count
        page = self._page(sequence >> PAGE_SHIFT)
        if page is not None:
            job = page.jobs[sequence & PAGE_MASK]
            if job is not None and job.id == id:
                return job
        if len(self.twins) > 0:
            return self.twins.get(id)
        return None

    def add(self, job: Job) -> None:
        """Any order; two jobs of one id are a bug."""
        sequence = (job.id - 1) // self.partition_count
        number = sequence >> PAGE_SHIFT
        page = self._page(number)
        if page is None:
            page = Page(number)
            self.pages[number] = page
            self.recent = page
            if number > self.newest.number:
                self._forget(self.newest)
                self.newest = page
        at = sequence & PAGE_MASK
        self.count += 1
        standing = page.jobs[at]
        if standing is not None:
            assert standing.id != job.id and job.id not in self.twins
            self.twins[job.id] = job
            return
        page.jobs[at] = job
        page.count += 1

    def remove(self, job: Job) -> None:
        sequence = (job.id - 1) // self.partition_count
        page = self._page(sequence >> PAGE_SHIFT)
        at = sequence & PAGE_MASK
        self.count -= 1
        if page is None or page.jobs[at] is not job:
            twin = self.twins.pop(job.id)
            assert twin is job
            return
        page.jobs[at] = None
        page.count -= 1
        if page is not self.newest:
            self._forget(page)

    def _forget(self, page: Page) -> None:
        """Frees the page if it is empty."""
        if page.count == 0 and page.number >= 0:
            del self.pages[page.number]
            self.recent = self.newest

    def _page(self, number: i64) -> Page | None:
        recent = self.recent
        if recent.number == number:
            return recent
        page = self.pages.get(number)
        if page is not None:
            self.recent = page
        return page

    def jobs(self) -> list[Job]:
        """All of them, oldest id first. For checks, statistics and compaction; O(n)."""
        found: list[Job] = []
        for number in sorted(self.pages):
            for job in self.pages[number].jobs:
                if job is not None:
                    found.append(job)
        if len(self.twins) > 0:
            found += list(self.twins.values())
            found.sort(key=_id_of)
        return found
