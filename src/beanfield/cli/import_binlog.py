"""`beanfield import`: the jobs of a beanstalkd binlog into a new data root. Loaded only when asked for."""

import argparse
import sys
import time
from typing import Final

from beanfield.cli.offline import (
    EXIT_FINDINGS,
    add_quiet_option,
    add_shape_options,
    counted,
    ended,
    new_parser,
    parse,
)
from beanfield.cli.options import EXIT_USAGE, Ending, ServeOptions
from beanfield.cli.progress import BYTES, JOBS, Progress
from beanfield.io.binlog_source import BinlogSource
from beanfield.io.machine import usable_cores
from beanfield.io.new_root import NewRoot, check_new
from beanfield.offline.binlog import Binlog, Fault, file_name
from beanfield.offline.importing import MAPPING_HEAD, MAPPING_NAME, Entry, ImportPlan
from beanfield.routing import Topology, TopologyError
from beanfield.supervisor.plan import ServerPlan

PROGRAM: Final = "beanfield import"
PROGRESS_JOBS: Final = 500
MAPPING_BATCH: Final = 10_000

TEXT = """Copies the jobs of a beanstalkd binlog (versions 7 and 5) into a new data root.
Offline: beanstalkd must be stopped. BINLOG_DIR is only read, under beanstalkd's own lock."""

EPILOG = f"""Kept: priority, delay (what is left of it by the clock), TTR, state, age, counters, order of burial, and,
with --partitions 1, ids. Else jobs get new ids in the order of the old ones, listed in DIR/{MAPPING_NAME}.
Everything that cannot be read or taken over is reported, one line each; the rest is imported.

Exit codes: 0 all imported, 1 imported but something was lost, 5 misuse, 10 a beanstalkd runs on BINLOG_DIR,
65 BINLOG_DIR has no binlog or DIR is not new, 74 a disk fault (nothing is left in DIR), 130 interrupted."""


def main(arguments: list[str]) -> int:
    """Raises Ending."""
    parser = new_parser(PROGRAM, "BINLOG_DIR --to DIR [OPTIONS]", TEXT, EPILOG)
    parser.add_argument("source", metavar="BINLOG_DIR", help="the directory of beanstalkd's -b")
    parser.add_argument("--to", metavar="DIR", help="the new data root: a directory that is empty or not there")
    parser.add_argument("--dry-run", action="store_true", help="read and report, write nothing")
    parser.add_argument(
        "--repair-names", action="store_true", help="tube names that are not allowed: `_` for bad bytes"
    )
    add_shape_options(parser, partitions=True)
    add_quiet_option(parser)
    given = parse(parser, arguments)
    if given.to is None and not given.dry_run:
        parser.error("--to DIR is missing (or --dry-run)")
    topology = _topology(given)
    return ended(PROGRAM, lambda: _run(given, topology))


def _topology(given: argparse.Namespace) -> Topology:
    """The shape that `serve` would choose with these options."""
    options = ServeOptions(PROGRAM)
    options.partitions = given.partitions
    options.slots = given.slots
    if given.slots is None and given.partitions is not None:
        options.slots = min(given.partitions, ServerPlan(ServeOptions(PROGRAM), usable_cores()).slots)
    try:
        return ServerPlan(options, usable_cores()).topology
    except TopologyError as error:
        raise Ending(EXIT_USAGE, err=f"{PROGRAM}: {error}\n") from error


def _run(given: argparse.Namespace, topology: Topology) -> int:
    if given.to is not None:
        check_new(given.to)
    with BinlogSource(given.source) as source:
        for name in source.strangers:
            _report(Fault(name, -1, "is no name that beanstalkd reads: left alone", lost=False))
        binlog = _read(source, given.quiet)
        plan = ImportPlan(binlog, topology, time.time_ns(), given.repair_names)
        for fault in plan.faults:
            _report(fault)
        lost = sum(fault.lost for fault in binlog.faults + plan.faults)
        _summary(binlog, plan, lost)
        if given.dry_run:
            print("dry run: nothing was written")
        else:
            lost += _write(source, plan, given)
            print(f"{given.to}: {counted(len(plan.entries), 'job')} in {counted(int(topology.slots), 'slot')}")
    return EXIT_FINDINGS if lost else 0


def _read(source: BinlogSource, quiet: bool) -> Binlog:
    binlog = Binlog()
    sizes = {number: source.size(number) for number in source.numbers}
    progress = Progress("reading", sum(sizes.values()), BYTES, quiet)
    try:
        for number in source.numbers:
            try:
                binlog.read_file(number, source.window(number))
            except OSError as error:
                text = f"cannot be read: {error.strerror}; what stands behind byte {binlog.offset} of it is missing"
                binlog.faults.append(Fault(file_name(number), -1, text))
            progress.advance(sizes[number])
    finally:
        progress.end()
    binlog.finish()
    for fault in binlog.faults:
        _report(fault)
    return binlog


def _summary(binlog: Binlog, plan: ImportPlan, lost: int) -> None:
    files = ", ".join(f"{counted(count, 'file')} of {name}" for name, count in binlog.versions.items()) or "no file"
    print(f"read: {files}, {counted(binlog.records, 'record')}, {counted(len(binlog.jobs), 'job')}")
    body_bytes = sum(entry.old.body_bytes for entry in plan.entries)
    states = ", ".join(f"{count:,} {state}" for state, count in plan.states().items())
    tubes = len({entry.tube for entry in plan.entries})
    print(
        f"to import: {counted(len(plan.entries), 'job')} ({states}) in {counted(tubes, 'tube')}, {body_bytes:,} bytes"
    )
    ids = "kept" if plan.keeps_ids else f"new, in the order of the old ones; {MAPPING_NAME} will list them"
    print(f"ids: {ids}")
    print(f"lost: {counted(lost, 'fault')}, see above" if lost else "lost: nothing")


def _write(source: BinlogSource, plan: ImportPlan, given: argparse.Namespace) -> int:
    """All entries; the number of those that could not be read after all."""
    root = NewRoot(given.to, plan.topology, given.segment_bytes, plan.next_sequence)
    progress = Progress("importing", len(plan.entries), JOBS, given.quiet)
    try:
        lost = _write_jobs(source, plan, root, progress)
        root.finish()
    except BaseException:
        root.abandon()
        raise
    finally:
        progress.end()
    return lost


def _write_jobs(source: BinlogSource, plan: ImportPlan, root: NewRoot, progress: Progress) -> int:
    lost = 0
    if not plan.keeps_ids:
        root.extra_file(MAPPING_NAME, MAPPING_HEAD)
    lines: list[bytes] = []
    for count, entry in enumerate(plan.entries, 1):
        body = _body(source, entry)
        if body is None:
            lost += 1
        else:
            root.add(plan.job(entry, body), entry.tube)
            lines.append(plan.mapping_line(entry))
        if count % PROGRESS_JOBS == 0:
            progress.advance(PROGRESS_JOBS)
        if not plan.keeps_ids and (len(lines) >= MAPPING_BATCH or count == len(plan.entries)):
            root.extra_file(MAPPING_NAME, b"".join(lines))
            lines.clear()
    return lost


def _body(source: BinlogSource, entry: Entry) -> bytes | None:
    old = entry.old
    try:
        body = source.read(old.file, old.body_offset, old.body_bytes)
        fault = "" if len(body) == old.body_bytes else "the file became shorter"
    except OSError as error:
        fault = f"cannot be read: {error.strerror}"
    if fault:
        _report(Fault(file_name(old.file), old.body_offset, f"body of job {entry.old_id}: {fault}: left out"))
        return None
    return body


def _report(fault: Fault) -> None:
    kind = "lost" if fault.lost else "note"
    print(f"{PROGRAM}: {kind}: {fault}", file=sys.stderr)
