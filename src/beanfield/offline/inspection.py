"""What a slot's log holds, as figures for a person and for programs; and whether it is sound.

A sound log is read as a start reads it (wal/recovery.py), so "sound" means that a start would take it. Of a damaged
one the figures are those of what could be salvaged, and the damage that stopped the start comes first in the list.

Knows disks only through the interface, and no clock but the time it is given.
"""

from collections.abc import Callable
from typing import Any, Final

from beanfield.engine.job import BURIED, DELAYED
from beanfield.offline.salvage import SalvagedSlot
from beanfield.routing import Topology
from beanfield.wal.damage import LogDamage
from beanfield.wal.disk import Disk, DiskFault
from beanfield.wal.lease import LeaseFile
from beanfield.wal.recovery import Recovery
from beanfield.wal.replay import Replay
from beanfield.wal.segments import LEASE_NAME, segment_name


class TubeFigures:
    """Jobs of one tube by the state a start now would give them."""

    def __init__(self, name: bytes, slot: int) -> None:
        self.name: Final = name
        self.slot: Final = slot
        self.ready = 0
        self.delayed = 0
        self.buried = 0
        self.body_bytes = 0
        self.paused_s = 0  # what is left of its pause

    def jobs(self) -> int:
        return self.ready + self.delayed + self.buried


class SlotFigures:
    """One slot. `damage` is empty if a start would take it."""

    def __init__(self, slot: int, path: str) -> None:
        self.slot: Final = slot
        self.path: Final = path
        self.damage: Final[list[LogDamage]] = []
        self.tubes: Final[list[TubeFigures]] = []
        self.replay: Replay | None = None
        self.next_sequence = 0
        self.lease_serial = 0
        self.lease_bad_cells = 0
        self.segments = 0  # with records that count, and the one that is written
        self.spares = 0
        self.allocated_bytes = 0
        self.live_bytes = 0
        self.own_bodies = 0
        self.own_body_bytes = 0
        self.records = 0
        self.end = (0, 0)  # segment and offset
        self.synced = (0, 0)
        self.torn_bytes = 0
        self.leftovers: list[str] = []
        self.strangers: list[str] = []
        self.id_min = 0
        self.id_max = 0

    def jobs(self) -> int:
        return sum(tube.jobs() for tube in self.tubes)


def read_slot(
    disk: Disk, slot: int, path: str, topology: Topology, now_ns: int, progress: Callable[[int], None]
) -> SlotFigures:
    """Reads everything and writes nothing. Raises DiskFault where not even a damaged log can be read."""
    figures = SlotFigures(slot, path)
    recovery = Recovery(disk, slot, topology)
    try:
        recovery.survey()
        before = 0
        more = True
        while more:
            more = recovery.step()
            progress(int(recovery.bytes_read) - before)
            before = int(recovery.bytes_read)
    except (LogDamage, DiskFault) as fault:
        figures.damage.append(fault if isinstance(fault, LogDamage) else LogDamage(fault.name, -1, str(fault)))
        _read_damaged(figures, disk, slot, topology)
    else:
        _take_recovery(figures, recovery)
    _take_lease(figures, disk, topology)
    _take_jobs(figures, now_ns)
    return figures


def _take_recovery(figures: SlotFigures, recovery: Recovery) -> None:
    replay = recovery.replay
    figures.replay = replay
    figures.next_sequence = int(recovery.next_sequence)
    headers = recovery.found.headers
    figures.segments = len(replay.segments)
    figures.spares = len(recovery.spares())
    figures.allocated_bytes = sum(int(header.segment_bytes) for header in headers.values())
    figures.end = (int(recovery.current), int(recovery.end_offset))
    figures.torn_bytes = int(recovery.torn_bytes())
    figures.leftovers = recovery.leftovers()
    figures.strangers = list(recovery.found.strangers)


def _read_damaged(figures: SlotFigures, disk: Disk, slot: int, topology: Topology) -> None:
    salvaged = SalvagedSlot(disk, slot, topology)
    salvaged.read()
    for damage in salvaged.damage:
        first = figures.damage[0]
        if (damage.file, damage.offset) != (first.file, first.offset) or damage.fault != first.fault:
            figures.damage.append(damage)
    figures.replay = salvaged.replay
    figures.next_sequence = salvaged.next_sequence
    figures.segments = len(salvaged.replay.segments)
    figures.allocated_bytes = sum(salvaged.segments.values())


def _take_lease(figures: SlotFigures, disk: Disk, topology: Topology) -> None:
    if LEASE_NAME in disk.names():
        try:
            lease = LeaseFile(disk.read(LEASE_NAME, 0, 1 << 16), figures.slot, topology.cluster_id)
        except DiskFault:
            return
        figures.lease_serial = int(lease.serial)
        figures.lease_bad_cells = int(lease.bad_cells)


def _take_jobs(figures: SlotFigures, now_ns: int) -> None:
    replay = figures.replay
    assert replay is not None
    figures.records = int(replay.records)
    figures.live_bytes = sum(int(segment.live_bytes()) for segment in replay.segments.values())
    figures.own_bodies = len(replay.own_bodies)
    figures.own_body_bytes = sum(int(own.body_bytes) for own in replay.own_bodies.values())
    figures.synced = (int(replay.synced_position >> 32), int(replay.synced_position & 0xFFFF_FFFF))
    tubes = [TubeFigures(name, figures.slot) for name in replay.tube_names]
    for job in replay.jobs.values():
        tube = tubes[int(job.tube)]
        tube.body_bytes += len(job.body)
        if job.state == BURIED:
            tube.buried += 1
        elif job.state == DELAYED and job.deadline_ns > now_ns:
            tube.delayed += 1
        else:
            tube.ready += 1
    for name, pause in replay.pauses.items():
        index = replay.tube_index.get(name)
        if index is not None and pause.until_wall_ns > now_ns:
            tubes[index].paused_s = -int((now_ns - pause.until_wall_ns) // 1_000_000_000)
    figures.tubes.extend(tube for tube in tubes if tube.jobs())
    if replay.jobs:
        figures.id_min = min(replay.jobs)
        figures.id_max = max(replay.jobs)


def slot_as_json(figures: SlotFigures) -> dict[str, Any]:
    return {
        "slot": figures.slot,
        "path": figures.path,
        "sound": not figures.damage,
        "damage": [damage_as_json(damage, figures.slot) for damage in figures.damage],
        "jobs": figures.jobs(),
        "ready": sum(tube.ready for tube in figures.tubes),
        "delayed": sum(tube.delayed for tube in figures.tubes),
        "buried": sum(tube.buried for tube in figures.tubes),
        "body_bytes": sum(tube.body_bytes for tube in figures.tubes),
        "id_min": figures.id_min or None,
        "id_max": figures.id_max or None,
        "next_sequence": figures.next_sequence,
        "lease": {"serial": figures.lease_serial, "bad_cells": figures.lease_bad_cells},
        "segments": figures.segments,
        "spares": figures.spares,
        "allocated_bytes": figures.allocated_bytes,
        "live_bytes": figures.live_bytes,
        "own_bodies": figures.own_bodies,
        "own_body_bytes": figures.own_body_bytes,
        "records": figures.records,
        "end": _place_as_json(figures.end),
        "synced": _place_as_json(figures.synced),
        "torn_bytes": figures.torn_bytes,
        "leftovers": figures.leftovers,
        "strangers": figures.strangers,
    }


def tube_as_json(tube: TubeFigures) -> dict[str, Any]:
    return {
        "name": tube.name.decode("ascii", "backslashreplace"),
        "slot": tube.slot,
        "ready": tube.ready,
        "delayed": tube.delayed,
        "buried": tube.buried,
        "body_bytes": tube.body_bytes,
        "paused_s": tube.paused_s,
    }


def damage_as_json(damage: LogDamage, slot: int | None) -> dict[str, Any]:
    return {
        "slot": slot,
        "file": damage.file,
        "offset": damage.offset if damage.offset >= 0 else None,
        "fault": damage.fault,
        "advice": damage.advice,
    }


def _place_as_json(place: tuple[int, int]) -> dict[str, Any] | None:
    number, offset = place
    return {"file": segment_name(number), "offset": offset} if number else None
