"""A whole beanstalkd binlog, read in order: which jobs it leaves, and every place that could not be read.

Rules: files in order of their numbers, each up to its zero tail; a full record makes or replaces a job, a short one
changes it, state 0 removes it. Bodies stay in the files: a job remembers where its body is. Behind a damaged place the
next plausible record is looked for, so that one damage does not take the rest of its file along, as it does with
beanstalkd. Bodies at and just below the size limit are jobs like others (beanstalkd drops them at a restart).

The order of burial is that of the last state-3 record that buried each job; beanstalkd itself loses it at a restart.

Knows no files beyond windows, no clock, and nothing of our own format.
"""

from typing import Final

from beanfield.constants import TUBE_NAME_BYTES_MAX
from beanfield.offline.binlog_records import (
    BURIED,
    DELETED,
    LAYOUTS,
    VERSION_BYTES,
    WINDOW_BYTES,
    Layout,
    OldRecord,
    RecordFault,
    Window,
    plausible,
    plausible_record,
    read_record,
)
from beanfield.offline.tube_names import NAME_CHARACTERS

# No record begins in zeros: behind a name length of 0 stands an id, which is not 0.
_ZEROS: Final = bytes(64)
_ZEROS_STEP: Final = 64 - 16


class OldJob:
    """A job as its last records say. Times are wall clock."""

    __slots__ = ("file", "record", "tube", "burial", "body_offset", "body_bytes")

    def __init__(self, file: int, record: OldRecord) -> None:
        self.file: int = file  # number of the file with its body
        self.record: OldRecord = record  # the last one
        self.tube: bytes = record.name
        self.burial: int = 0  # 0: not buried
        self.body_offset: int = record.body_offset
        self.body_bytes: int = record.body_bytes


class Fault:
    """Something that could not be read or taken over, or a note. `lost`: data is missing because of it."""

    def __init__(self, file: str, offset: int, text: str, lost: bool = True) -> None:
        self.file: Final = file
        self.offset: Final = offset  # -1: not at a place
        self.text: Final = text
        self.lost: Final = lost

    def __str__(self) -> str:
        place = f"{self.file}, byte {self.offset}" if self.offset >= 0 else self.file
        return f"{place}: {self.text}"


def file_name(number: int) -> str:
    return f"binlog.{number}"


class Binlog:
    """Feed it all files in order, then finish()."""

    def __init__(self) -> None:
        self.jobs: Final[dict[int, OldJob]] = {}
        self.faults: Final[list[Fault]] = []
        self.versions: Final[dict[str, int]] = {}  # name of a layout: files of it
        self.id_max = 0  # over all records, deleted jobs included
        self.records = 0
        self.offset = 0  # in the file being read
        self._burials = 0
        self._orphans: dict[int, tuple[int, int]] = {}  # changed, but never seen in full; where
        self._file = 0
        self._previous_file = 0

    # ---------------------------------------------------------------- files
    def read_file(self, number: int, window: Window) -> None:
        """The next file. Its records, up to its end or zero tail."""
        assert number > self._previous_file
        if self._previous_file and number > self._previous_file + 1:
            missing = range(self._previous_file + 1, number)
            names = file_name(missing[0]) + (f" to {file_name(missing[-1])}" if len(missing) > 1 else "")
            self._fault(names, -1, "is missing: beanstalkd removes files only from the oldest on")
        self._previous_file = self._file = number
        self.offset = 0
        head = window.bytes_at(0, VERSION_BYTES)
        version = int.from_bytes(head, "little", signed=True)
        if len(head) < VERSION_BYTES or version == 0:
            what = "is empty" if window.size == 0 else "has no header: what it may have held is lost"
            self._fault(file_name(number), 0, what)
            return
        if version not in LAYOUTS:
            self._fault(file_name(number), 0, f"has version {version}; versions 5 and 7 are known: nothing is read")
            return
        layout = self._layout_of(version, window)
        self.versions[layout.name] = self.versions.get(layout.name, 0) + 1
        self._read_records(window, layout)

    def _layout_of(self, version: int, window: Window) -> Layout:
        """By the first record that can be read so: builds for 32-bit machines are told by nothing else."""
        layouts = LAYOUTS[version]
        for layout in layouts:
            if plausible_record(window, layout, VERSION_BYTES, NAME_CHARACTERS) is not None:
                return layout
        firsts = [(next_record(window, layout, VERSION_BYTES), layout) for layout in layouts]
        found = [(at, layout) for at, layout in firsts if at >= 0]
        return min(found, key=_place)[1] if found else layouts[0]

    def _read_records(self, window: Window, layout: Layout) -> None:
        offset = VERSION_BYTES
        while True:
            self.offset = offset
            try:
                record = read_record(window, layout, offset)
            except RecordFault as fault:
                offset = self._skip(window, layout, offset, fault)
                if offset < 0:
                    return
                continue
            if record is None:
                return
            self._apply(record)
            offset += record.record_bytes

    def _skip(self, window: Window, layout: Layout, offset: int, fault: RecordFault) -> int:
        """Where reading goes on behind a damaged place; -1: nowhere in this file."""
        torn = fault.torn
        if torn is not None:
            following = offset + torn.record_bytes
            at_end = following + window.zeros_at(following) >= window.size
            if at_end or plausible(window, layout, following, NAME_CHARACTERS):
                self._name_id(torn.id)
                self._fault(file_name(self._file), offset, f"{fault.text}: the job is left out{self._older(torn.id)}")
                return following
        at = next_record(window, layout, offset + 1)
        if at < 0:
            left = window.size - offset
            self._fault(file_name(self._file), offset, f"{fault.text}; the {left} bytes up to the end are not read")
        else:
            text = f"{fault.text}; {at - offset} bytes are skipped, the next record is at byte {at}"
            self._fault(file_name(self._file), offset, text)
        return at

    def _older(self, id: int) -> str:
        return ", an older record of it is used" if id in self.jobs else ""

    # ---------------------------------------------------------------- records
    def _apply(self, record: OldRecord) -> None:
        self.records += 1
        id = record.id
        self._name_id(id)
        if record.state == DELETED:
            self.jobs.pop(id, None)
            self._orphans.pop(id, None)
            return
        job = self.jobs.get(id)
        if record.name:
            burial = job.burial if job is not None else 0
            job = OldJob(self._file, record)
            self.jobs[id] = job
            self._orphans.pop(id, None)
            # Compaction writes a buried job anew: that is no burial, unless the older record is gone.
            if record.state == BURIED:
                job.burial = burial or self._next_burial()
            return
        if job is None:
            self._orphans[id] = (self._file, record.offset)
            return
        job.record = record
        job.burial = self._next_burial() if record.state == BURIED else 0

    def _next_burial(self) -> int:
        self._burials += 1
        return self._burials

    def _name_id(self, id: int) -> None:
        self.id_max = max(self.id_max, id)

    def _fault(self, file: str, offset: int, text: str) -> None:
        self.faults.append(Fault(file, offset, text))

    def finish(self) -> None:
        """After the last file: what is changed and neither there nor deleted is lost."""
        for id, (file, offset) in self._orphans.items():
            self._fault(file_name(file), offset, f"job {id} is changed here, but the record with its body is gone")


def _place(found: tuple[int, Layout]) -> int:
    return found[0]


def next_record(window: Window, layout: Layout, offset: int) -> int:
    """Where the next plausible record begins, or -1."""
    while offset + layout.head_bytes <= window.size:
        piece = window.bytes_at(offset, min(WINDOW_BYTES, window.size - offset))
        at = 0
        while at + layout.head_bytes <= len(piece):
            if piece.startswith(_ZEROS, at):
                at += _ZEROS_STEP
            elif layout.length.unpack_from(piece, at)[0] <= TUBE_NAME_BYTES_MAX:
                if plausible(window, layout, offset + at, NAME_CHARACTERS):
                    return offset + at
                at += 1
            else:
                at += 1
        offset += at
    return -1
