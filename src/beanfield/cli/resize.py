"""`beanfield resize`: a data root into a new one with another number of slots. Loaded only when asked for."""

import argparse
import os
from typing import Final

from beanfield.cli.copy_root import copy_slots, read_slots
from beanfield.cli.offline import add_quiet_option, add_shape_options, counted, ended, new_parser, number, parse
from beanfield.cli.options import EXIT_USAGE, Ending
from beanfield.constants import CLUSTER_ID_BYTES, EXIT_BAD_DATA, SLOTS_MAX
from beanfield.io.new_root import check_new
from beanfield.io.root import RootFault
from beanfield.io.root_view import RootView
from beanfield.routing import Topology, TopologyError

PROGRAM: Final = "beanfield resize"

TEXT = """Copies a data root into a new one with another number of slots. Offline: the server must be stopped.
DIR is only read; start the server with `-b NEW_DIR` afterwards."""

EPILOG = """Partitions move whole: names and ids stay what they are, and all slots go on with ids above every one that
was given out. The number of partitions cannot change; slots can be 1 up to that.

Exit codes: 0 done, 5 misuse, 10 a server runs on DIR, 65 DIR is damaged (`beanfield wal verify` says where) or NEW_DIR
is not new, 74 a disk fault (nothing is left in NEW_DIR), 130 interrupted."""


def main(arguments: list[str]) -> int:
    """Raises Ending."""
    parser = new_parser(PROGRAM, "DIR --to NEW_DIR --slots N [OPTIONS]", TEXT, EPILOG)
    parser.add_argument("root", metavar="DIR", help="the directory of -b")
    parser.add_argument("--to", metavar="NEW_DIR", help="the new data root: a directory that is empty or not there")
    parser.add_argument("--slots", type=number(SLOTS_MAX), metavar="N", help="how many slots it has")
    parser.add_argument("--dry-run", action="store_true", help="read and say what would go where, write nothing")
    add_shape_options(parser, partitions=False)
    add_quiet_option(parser)
    given = parse(parser, arguments)
    if given.slots is None:
        parser.error("--slots N is missing")
    if given.to is None and not given.dry_run:
        parser.error("--to NEW_DIR is missing (or --dry-run)")
    return ended(PROGRAM, lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    if given.to is not None:
        check_new(given.to)
    with RootView(given.root) as view:
        if view.is_slot:
            raise RootFault(EXIT_BAD_DATA, f"{given.root}: is one slot of a data root; give the root")
        for damage in view.damage:
            raise RootFault(EXIT_BAD_DATA, str(damage))
        view.hold()
        old = view.topology
        try:
            new = Topology(int(old.partitions), given.slots, None, os.urandom(CLUSTER_ID_BYTES))
        except TopologyError as error:
            raise Ending(EXIT_USAGE, err=f"{PROGRAM}: {error}; the number of partitions cannot change\n") from error
        jobs = [0] * given.slots
        body_bytes = [0] * given.slots
        next_sequence = 0
        # Everything is read before anything is written: a damaged slot refuses at once, and the counter is known.
        for figures in read_slots(view, given.quiet):
            for found in figures.damage:
                raise RootFault(EXIT_BAD_DATA, f"{figures.path}: {found}")
            figures.replay = None  # only its figures are needed now
            next_sequence = max(next_sequence, figures.next_sequence)
            for tube in figures.tubes:
                slot = new.slot_of_name(tube.name)
                jobs[slot] += tube.jobs()
                body_bytes[slot] += tube.body_bytes
        print(f"{given.root}: {counted(sum(jobs), 'job')} in {counted(int(old.slots), 'slot')}")
        for slot in range(given.slots):
            partitions = sum(1 for owner in new.map if owner == slot)
            print(
                f"  new slot {slot}: {counted(partitions, 'partition')}, {counted(jobs[slot], 'job')}, "
                f"{body_bytes[slot]:,} bytes"
            )
        if given.dry_run:
            print("dry run: nothing was written")
            return 0
        copy_slots(view, new, next_sequence, sum(jobs), given)
    print(f"{given.to}: {counted(sum(jobs), 'job')} in {counted(given.slots, 'slot')}")
    return 0
