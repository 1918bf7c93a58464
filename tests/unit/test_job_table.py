"""The table of a slot's jobs: also jobs of one sequence, which only a resized root has."""

from beanfield.engine.job import Job
from beanfield.engine.table import PAGE_JOBS, JobTable

PARTITIONS = 4


def job_of(sequence: int, partition: int) -> Job:
    return Job(sequence * PARTITIONS + partition + 1, 0, 0, 0, 0, 1, b"")


def test_jobs_of_one_sequence_stand_side_by_side() -> None:
    table = JobTable(PARTITIONS)
    jobs = [job_of(sequence, partition) for sequence in (5, PAGE_JOBS + 5) for partition in (2, 0, 3)]
    for job in jobs:
        table.add(job)
    assert table.count == 6
    assert table.jobs() == sorted(jobs, key=lambda job: job.id)
    assert all(table.find(job.id) is job for job in jobs)
    assert table.find(5 * PARTITIONS + 1 + 1) is None


def test_jobs_of_one_sequence_go_in_any_order() -> None:
    for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0), (0, 2, 1)):
        table = JobTable(PARTITIONS)
        jobs = [job_of(9, partition) for partition in range(3)]
        newer = job_of(3 * PAGE_JOBS, 1)  # so that the page of the others may be freed
        for job in [*jobs, newer]:
            table.add(job)
        left = list(jobs)
        for index in order:
            table.remove(jobs[index])
            left.remove(jobs[index])
            assert table.find(jobs[index].id) is None
            assert all(table.find(job.id) is job for job in left)
            assert table.jobs() == [*left, newer]
        assert table.count == 1
        assert len(table.pages) == 1


def test_a_place_that_was_given_back_is_used_again_beside_a_twin() -> None:
    table = JobTable(PARTITIONS)
    first, second, third = (job_of(7, partition) for partition in range(3))
    table.add(first)
    table.add(second)
    table.remove(first)
    table.add(third)
    assert table.find(second.id) is second
    assert table.find(third.id) is third
    table.remove(third)
    table.remove(second)
    assert table.jobs() == []
