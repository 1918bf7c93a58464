"""`beanfield wal inspect | verify | salvage`: looks at logs, and copies what is readable. Loaded only when asked for.

inspect and verify read and nothing else: no lock, no descriptor for writing. A server that runs is noticed and named.
"""

import argparse
import json
import os
from typing import Any, Final

from beanfield.cli.copy_root import copy_slots, read_slots
from beanfield.cli.offline import (
    EXIT_FINDINGS,
    add_quiet_option,
    add_shape_options,
    counted,
    ended,
    new_parser,
    parse,
)
from beanfield.cli.options import EXIT_USAGE, Ending
from beanfield.constants import CLUSTER_ID_BYTES
from beanfield.io.new_root import check_new
from beanfield.io.root_view import RootView
from beanfield.offline.inspection import SlotFigures, TubeFigures, damage_as_json, slot_as_json, tube_as_json
from beanfield.offline.tube_names import printable
from beanfield.routing import Topology
from beanfield.wal.damage import LogDamage
from beanfield.wal.segments import segment_name

PROGRAM: Final = "beanfield wal"
JSON_FORMAT: Final = 1
TUBES_SHOWN: Final = 40
NAMES_SHOWN: Final = 5
RUNNING_TRIES: Final = 3  # a log that is being written may look damaged for a moment

USAGE: Final = f"""Use: {PROGRAM} COMMAND DIR [OPTIONS]

DIR is a data root (the directory of -b) or one of its slot directories.

Commands:
 inspect      what is in it: jobs by tube and state, segments, ids, damage
 verify       whether a server could start from it; exit code 1 if not
 salvage      copy what is readable of a damaged one into a new data root

`{PROGRAM} COMMAND --help` shows the options.
"""

CODES: Final = """While a server runs on DIR the figures are those of a moment.

Exit codes: 0 sound, 1 damaged, 5 misuse, 65 DIR is nothing that can be looked at, 74 a disk fault, 130 interrupted."""

SALVAGE_CODES: Final = """A log that is only torn at its end needs no salvage: a start cuts the tail and says so.
Behind damage nobody can say what is lost: jobs may be missing, be as they were before, or be back though they were
deleted. Names, ids and slots stay.

Exit codes: 0 all copied, 1 copied and something was damaged, 5 misuse, 10 a server runs on DIR, 65 DIR is nothing
that can be salvaged or NEW_DIR is not new, 74 a disk fault (nothing is left in NEW_DIR), 130 interrupted."""


def main(arguments: list[str]) -> int:
    """Raises Ending."""
    command = arguments[0] if arguments else ""
    rest = arguments[1:]
    if command in ("inspect", "verify"):
        text = {"inspect": "Shows what is in a log. ", "verify": "Says whether a log is sound. "}[command]
        parser = new_parser(f"{PROGRAM} {command}", "DIR [OPTIONS]", text + "Reads only, and takes no lock.", CODES)
        parser.add_argument("path", metavar="DIR", help="a data root, or one of its slot directories")
        parser.add_argument("--json", action="store_true", help="as JSON on stdout, nothing else")
        if command == "inspect":
            parser.add_argument(
                "--all", action="store_true", help=f"all tubes, not only the {TUBES_SHOWN} with most jobs"
            )
        add_quiet_option(parser)
        given = parse(parser, rest)
        return ended(PROGRAM, lambda: _look(given, command))
    if command == "salvage":
        text = "Copies what is readable of a data root into a new one. DIR is only read."
        parser = new_parser(f"{PROGRAM} salvage", "DIR --to NEW_DIR [OPTIONS]", text, SALVAGE_CODES)
        parser.add_argument("path", metavar="DIR", help="a data root, or one of its slot directories")
        parser.add_argument("--to", metavar="NEW_DIR", help="the new data root: a directory that is empty or not there")
        add_shape_options(parser, partitions=False)
        add_quiet_option(parser)
        given = parse(parser, rest)
        if given.to is None:
            parser.error("--to NEW_DIR is missing")
        return ended(PROGRAM, lambda: _salvage(given))
    if command in ("-h", "--help", "help"):
        raise Ending(0, out=USAGE)
    raise Ending(EXIT_USAGE, err=(f"{PROGRAM}: unknown command: {command}\n" if command else "") + USAGE)


# ---------------------------------------------------------------- inspect and verify
class Findings:
    """A root with its slots, read."""

    def __init__(self, view: RootView, quiet: bool) -> None:
        self.view: Final = view
        self.server = view.server()
        self.slots: Final[list[SlotFigures]] = []
        for figures in read_slots(view, quiet):
            figures.replay = None  # its figures are taken
            self.slots.append(figures)
        self.server = self.server or view.server()

    def damage(self) -> list[tuple[int | None, LogDamage]]:
        found: list[tuple[int | None, LogDamage]] = [(None, damage) for damage in self.view.damage]
        return found + [(slot.slot, damage) for slot in self.slots for damage in slot.damage]

    def tubes(self) -> list[TubeFigures]:
        return sorted((tube for slot in self.slots for tube in slot.tubes), key=lambda tube: (-tube.jobs(), tube.name))


def _look(given: argparse.Namespace, command: str) -> int:
    for _ in range(RUNNING_TRIES):
        with RootView(given.path) as view:
            findings = Findings(view, given.quiet)
        if not findings.damage() or not findings.server:
            break
    if given.json:
        print(json.dumps(_as_json(findings), indent=1))
    elif command == "inspect":
        _print_inspection(findings, given.all)
    else:
        _print_verdict(findings)
    return EXIT_FINDINGS if findings.damage() else 0


def _as_json(findings: Findings) -> dict[str, Any]:
    view = findings.view
    return {
        "format": JSON_FORMAT,
        "path": view.path,
        "kind": "slot" if view.is_slot else "root",
        "cluster_id": view.topology.cluster_id.hex(),
        "partitions": int(view.topology.partitions),
        "slots_total": int(view.topology.slots),
        "topology_found_by_fingerprint": view.topology_found,
        "server_pid": findings.server or None,
        "sound": not findings.damage(),
        "damage": [damage_as_json(damage, slot) for slot, damage in findings.damage()],
        "slots": [slot_as_json(slot) for slot in findings.slots],
        "tubes": [tube_as_json(tube) for tube in findings.tubes()],
    }


def _print_head(findings: Findings) -> None:
    view = findings.view
    topology = view.topology
    kind = "slot directory" if view.is_slot else "data root"
    print(f"{view.path}: {kind}, {topology.partitions} partitions over {counted(int(topology.slots), 'slot')}")
    print(f"cluster id {topology.cluster_id.hex()}")
    if findings.server:
        who = f"process {findings.server}" if findings.server > 0 else "a process elsewhere"
        print(f"a server runs on it ({who}): what follows is of one moment, and may look torn or damaged")


def _print_damage(findings: Findings) -> None:
    for slot, damage in findings.damage():
        place = f", byte {damage.offset}" if damage.offset >= 0 else ""
        where = f"slot {slot}, " if slot is not None else ""
        print(f"DAMAGE: {where}{damage.file}{place}: {damage.fault}")
    if findings.damage():
        advice = dict.fromkeys(damage.advice for _, damage in findings.damage())
        print("what to do: " + "; ".join(advice))
        print(f"  restore a backup, or: {PROGRAM} salvage {findings.view.path} --to NEW_DIR")


def _print_verdict(findings: Findings) -> None:
    _print_head(findings)
    for slot in findings.slots:
        verdict = "DAMAGED" if slot.damage else "sound"
        torn = f", a torn tail of {slot.torn_bytes} bytes that a start cuts" if slot.torn_bytes else ""
        print(f"slot {slot.slot}: {verdict}, {counted(slot.jobs(), 'job')}, {counted(slot.records, 'record')}{torn}")
    _print_damage(findings)


def _print_inspection(findings: Findings, show_all: bool) -> None:
    _print_head(findings)
    for slot in findings.slots:
        _print_slot(slot, findings.view.topology)
    tubes = findings.tubes()
    shown = tubes if show_all else tubes[:TUBES_SHOWN]
    if shown:
        print(f"\n{'tube':30} {'slot':>4} {'ready':>10} {'delayed':>10} {'buried':>10} {'body bytes':>14}")
    for tube in shown:
        paused = f"  paused, {tube.paused_s} s left" if tube.paused_s else ""
        print(
            f"{printable(tube.name):30} {tube.slot:4} {tube.ready:10,} {tube.delayed:10,} {tube.buried:10,} "
            f"{tube.body_bytes:14,}{paused}"
        )
    if len(tubes) > len(shown):
        print(f"… and {counted(len(tubes) - len(shown), 'tube')} more: --all")
    if findings.damage():
        print()
    _print_damage(findings)


def _print_slot(slot: SlotFigures, topology: Topology) -> None:
    print(f"\nslot {slot.slot}: {'DAMAGED, figures are of what is readable' if slot.damage else 'sound'}")
    states = [(sum(getattr(tube, state) for tube in slot.tubes), state) for state in ("ready", "delayed", "buried")]
    print(f"  jobs       {slot.jobs():,}: " + ", ".join(f"{count:,} {state}" for count, state in states))
    if slot.jobs():
        print(f"  job ids    {slot.id_min} to {slot.id_max}")
    first_free = slot.next_sequence * int(topology.partitions) + 1
    cells = f"; {counted(slot.lease_bad_cells, 'cell')} of the lease unreadable" if slot.lease_bad_cells else ""
    print(f"  new ids    from {first_free} on (sequence {slot.next_sequence})")
    print(f"  lease      written {slot.lease_serial} times{cells}")
    print(
        f"  segments   {slot.segments:,}, and {counted(slot.spares, 'spare')}; "
        f"{slot.allocated_bytes:,} bytes allocated, {slot.live_bytes:,} needed"
    )
    if slot.own_bodies:
        print(f"  bodies     {counted(slot.own_bodies, 'job')} with a file of its own, {slot.own_body_bytes:,} bytes")
    print(f"  records    {slot.records:,}")
    if slot.end[0]:
        print(f"  ends at    {segment_name(slot.end[0])}, byte {slot.end[1]:,}")
    if slot.synced[0]:
        print(f"  synced to  {segment_name(slot.synced[0])}, byte {slot.synced[1]:,} at least, says the last mark")
    if slot.torn_bytes:
        print(f"  torn tail  {slot.torn_bytes:,} bytes behind its end, from a crash: a start cuts them")
    if slot.leftovers:
        print(f"  leftovers  {_some(slot.leftovers)}: a start removes them")
    if slot.strangers:
        print(f"  strangers  {_some(slot.strangers)}: left alone")


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMES_SHOWN]) + (" …" if len(names) > NAMES_SHOWN else "")


# ---------------------------------------------------------------- salvage
def _salvage(given: argparse.Namespace) -> int:
    check_new(given.to)
    with RootView(given.path) as view:
        view.hold()
        findings = Findings(view, given.quiet)
        _print_head(findings)
        for slot, damage in findings.damage():
            print(f"damage: {f'slot {slot}, ' if slot is not None else ''}{damage}")
        old = view.topology
        new = Topology(int(old.partitions), int(old.slots), old.map, os.urandom(CLUSTER_ID_BYTES))
        next_sequence = max((slot.next_sequence for slot in findings.slots), default=0)
        jobs = sum(slot.jobs() for slot in findings.slots)
        copy_slots(view, new, next_sequence, jobs, given)
    print(f"{given.to}: {counted(jobs, 'job')} copied")
    return EXIT_FINDINGS if findings.damage() else 0
