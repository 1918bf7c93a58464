"""What clients have been told about each job, and the checks that follow from it alone.

It keeps intervals, not states: a command takes effect at some instant between being sent and being answered, and an
unanswered one at any instant later or never. A check fires only when no order of these instants explains the replies.
"""

from typing import TYPE_CHECKING, Any

from beanfield.constants import NEVER_NS
from sim.client import Command, SimClient
from sim.world import NS_PER_MS, NS_PER_S, Violation

if TYPE_CHECKING:
    from beanfield.routing import Topology

GIVES_UP = ("release", "bury", "delete")
LATE_NS = 2 * NS_PER_MS


class JobRecord:
    """One put, answered or not."""

    def __init__(self, number: int, command: Command) -> None:
        self.number = number
        self.body = command.body
        self.priority = command.priority
        self.delay_s = command.delay_s
        self.ttr_s = command.ttr_s
        self.sent_ns = command.sent_ns
        self.id = 0  # once known
        self.acknowledged_ns = 0
        self.refused = False
        self.tube = b""
        self.deleted_ns = 0
        self.delete_sent = False  # some delete may have been executed
        self.dead_ns = 0  # its owner ended then
        self.may_be_early = False  # kicked, released or reserved by id: its delay no longer counts
        # The one client that certainly holds it, as far as clients can know.
        self.holder: SimClient | None = None
        self.held_since_ns = 0
        self.held_until_ns = 0


class Ledger:
    """All puts of a run by number (the head of each body) and by id."""

    def __init__(self, topology: "Topology") -> None:
        self.topology = topology
        self.records: list[JobRecord] = []
        self.by_id: dict[int, JobRecord] = {}
        self.possible: dict[tuple[str, int], tuple[int, int]] = {}  # (client, id) -> earliest and latest deadline
        self.guessed: dict[int, int] = {}  # deletes of ids not known yet: when answered DELETED, or 0
        self.suspects: list[Command] = []  # TIMED_OUT, true only if jobs still held are granted next
        self.answered: dict[str, int] = {}  # by verb and word

    # ---------------------------------------------------------------- sent
    def new_body(self, size: int) -> bytes:
        head = b"j%d." % len(self.records)
        return head + b"x" * max(size - len(head), 0)

    def sent(self, client: SimClient, command: Command) -> None:
        if command.verb == "put":
            self.records.append(JobRecord(len(self.records), command))
            return
        if command.verb == "quit":
            self.let_go(client)
        record = self.by_id.get(command.id)
        if command.verb == "delete" and record is not None:
            record.delete_sent = True
        elif command.verb == "delete":
            self.guessed.setdefault(command.id, 0)
        if command.verb in GIVES_UP and record is not None and record.holder is client:
            record.holder = None
        if command.verb in ("kick-job", "reserve-job", "release") and record is not None:
            record.may_be_early = True
        if command.verb == "kick":
            for each in self.records:
                each.may_be_early = True

    # ---------------------------------------------------------------- answered
    def answer(self, client: SimClient, command: Command) -> None:
        kind = f"{command.verb} {command.reply_word.decode()}"
        self.answered[kind] = self.answered.get(kind, 0) + 1
        word = command.reply_word
        if command.verb == "put":
            self._put_answered(client, command)
        elif word == b"RESERVED":
            self._reserved(client, command)
        elif word == b"FOUND":
            self._seen(client, command)
        elif word == b"DELETED":
            self._deleted(client, command)
        elif word == b"TOUCHED":
            self._touched(client, command)
        elif word == b"DEADLINE_SOON":
            self._deadline_soon(client, command)
        elif word == b"TIMED_OUT":
            self._timed_out(client, command)
        elif word in (b"RELEASED", b"BURIED"):
            self.possible.pop((client.name, command.id), None)
        elif word == b"NOT_FOUND" and command.verb in ("delete", "release", "bury", "touch"):
            self._not_found(client, command)

    def _put_answered(self, client: SimClient, command: Command) -> None:
        record = self.records[_number(command.body)]
        if command.reply_word != b"INSERTED":
            record.refused = command.reply_word != b"INTERNAL_ERROR"
            return
        id_ = int(command.reply_args[0])
        self._learn_id(record, id_)
        record.acknowledged_ns = command.answered_ns
        record.tube = client.used
        slot = self.topology.slot_of_id(id_)
        if slot != self.topology.slot_of_name(client.used):
            raise Violation(f"job {id_} of tube {client.used!r} has an id of slot {slot}")

    def _learn_id(self, record: JobRecord, id_: int) -> None:
        known = self.by_id.setdefault(id_, record)
        if known is not record:
            raise Violation(f"id {id_} was given to two jobs: {known.number} and {record.number}")
        if record.id not in (0, id_):
            raise Violation(f"job {record.number} has two ids: {record.id} and {id_}")
        record.id = id_
        if id_ in self.guessed:
            record.delete_sent = True
            record.deleted_ns = record.deleted_ns or self.guessed.pop(id_)

    def _seen(self, client: SimClient, command: Command) -> JobRecord:
        """RESERVED or FOUND: the job was there at some instant of the command."""
        id_ = int(command.reply_args[0])
        record = self.records[_number(command.reply_body)]
        if record.body != command.reply_body:
            raise Violation(f"{client.name}: job {id_} has another body than was put")
        if command.id not in (0, id_):
            raise Violation(f"{client.name}: asked for {command.id}, got {id_}")
        self._learn_id(record, id_)
        if record.refused:
            raise Violation(f"{client.name}: job {id_} exists, but its put was refused")
        if record.deleted_ns and record.deleted_ns <= command.sent_ns:
            raise Violation(f"{client.name}: job {id_} was deleted, and is there again")
        if record.dead_ns and record.dead_ns <= command.sent_ns:
            raise Violation(f"{client.name}: job {id_} ended with its owner, and is there again")
        return record

    def _reserved(self, client: SimClient, command: Command) -> None:
        record = self._seen(client, command)
        now_ns = command.answered_ns
        ttr_ns = record.ttr_s * NS_PER_S
        if not record.may_be_early and now_ns < record.sent_ns + record.delay_s * NS_PER_S:
            raise Violation(f"{client.name}: job {record.id} was reserved before its delay was over")
        if command.verb != "reserve-job" and record.tube and record.tube not in client.watched:
            raise Violation(f"{client.name}: got job {record.id} of {record.tube!r}, watches {client.watched!r}")
        given_up = any(each.id == record.id and each.verb in GIVES_UP for each in client.outstanding)
        given_up = given_up or client.half_closed or client.quit_sent or client.broken_ns >= command.sent_ns
        holder = record.holder
        if holder is not None and now_ns < record.held_until_ns and not given_up:
            # This reservation lasts at least for its TTR, so it cannot have come and gone before the other began.
            if command.sent_ns + ttr_ns > record.held_since_ns:
                raise Violation(f"job {record.id} is reserved by {client.name} while {holder.name} holds it")
        earliest_ns = command.sent_ns + ttr_ns
        self.possible[(client.name, record.id)] = (earliest_ns, now_ns + ttr_ns)
        record.holder = None
        if not given_up:
            record.holder = client
            record.held_since_ns = now_ns
            record.held_until_ns = earliest_ns

    def _deleted(self, client: SimClient, command: Command) -> None:
        record = self.by_id.get(command.id)
        self.possible.pop((client.name, command.id), None)
        if record is None:
            self.guessed[command.id] = command.answered_ns
            return
        if record.deleted_ns:
            raise Violation(f"{client.name}: job {command.id} was deleted twice")
        holder = record.holder
        if holder is not None and holder is not client and record.held_since_ns <= command.sent_ns:
            if command.answered_ns < record.held_until_ns:
                raise Violation(f"{client.name} deleted job {command.id}, which {holder.name} holds")
        record.deleted_ns = command.answered_ns
        record.holder = None

    def _touched(self, client: SimClient, command: Command) -> None:
        record = self.by_id.get(command.id)
        if record is None:
            return
        ttr_ns = record.ttr_s * NS_PER_S
        self.possible[(client.name, command.id)] = (command.sent_ns + ttr_ns, command.answered_ns + ttr_ns)
        if record.holder is client:
            record.held_until_ns = command.sent_ns + ttr_ns

    def _not_found(self, client: SimClient, command: Command) -> None:
        record = self.by_id.get(command.id)
        if record is None or command.verb != "touch":
            return
        held = record.holder is client and record.held_since_ns <= command.sent_ns
        if held and command.answered_ns < record.held_until_ns:
            raise Violation(f"{client.name} holds job {command.id}, and cannot {command.verb} it")

    def _deadline_soon(self, client: SimClient, command: Command) -> None:
        for (name, _), (earliest_ns, latest_ns) in self.possible.items():
            if name != client.name:
                continue
            if command.answered_ns >= earliest_ns - NS_PER_S and command.sent_ns <= latest_ns + LATE_NS:
                return
        raise Violation(f"{client.name}: DEADLINE_SOON, but no job of it is near its deadline")

    def _timed_out(self, client: SimClient, command: Command) -> None:
        # With a `watch` or `ignore` ahead that failed, the instants were noted for other tubes.
        as_expected = sorted(command.watched) == sorted(client.watched)
        if not command.none_seen and as_expected and not client.excused:
            if not command.pending:
                raise Violation(f"{client.name}: TIMED_OUT, but there always was a job for it in {command.watched!r}")
            self.suspects.append(command)
        if client.half_closed:
            return
        if command.timeout_s < 0:
            raise Violation(f"{client.name}: reserve without a limit is TIMED_OUT")
        if command.answered_ns < command.sent_ns + command.timeout_s * NS_PER_S:
            raise Violation(f"{client.name}: TIMED_OUT before its time")
        for record in self.records:
            if record.holder is not client:
                continue
            latest_ns = self.possible[(client.name, record.id)][1]
            if latest_ns - NS_PER_S <= command.sent_ns and command.answered_ns < record.held_until_ns:
                raise Violation(f"{client.name}: TIMED_OUT in the margin of job {record.id}: DEADLINE_SOON is due")

    # ---------------------------------------------------------------- ends and faults
    def let_go(self, client: SimClient) -> None:
        """From now on nothing is certain about what this client holds."""
        for record in self.records:
            if record.holder is client:
                record.holder = None

    def client_over(self, client: SimClient) -> None:
        self.let_go(client)
        for key in [key for key in self.possible if key[0] == client.name]:
            del self.possible[key]

    def owner_ended(self, slot: int, now_ns: int, has_log: bool) -> None:
        """Without a log all its jobs end with it; with one, slot_read will tell."""
        for record in self.records:
            record.holder = None  # who lost one reservation is closed, and loses the others too
            if has_log:
                continue
            if record.id and self.topology.slot_of_id(record.id) == slot:
                record.dead_ns = record.dead_ns or now_ns
            elif not record.id and not record.refused:
                record.delete_sent = True

    def slot_read(self, slot: int, jobs: dict[int, Any], safe_until_ns: int, now_ns: int) -> None:
        """What a recovery found (sim.slot_log.Facts by id). What was answered before safe_until_ns cannot be lost."""
        for id_, facts in jobs.items():
            record = self.records[_number(facts[-1])]
            self._learn_id(record, id_)
            if record.body != facts[-1] or record.refused or record.dead_ns:
                raise Violation(f"slot {slot} finds job {id_}, which should not be there")
            if 0 < record.deleted_ns < safe_until_ns:
                raise Violation(f"slot {slot} finds job {id_}, whose delete was answered at {record.deleted_ns}")
            record.deleted_ns = 0
            if facts[4] != record.ttr_s:
                raise Violation(f"slot {slot}: job {id_} was put with TTR {record.ttr_s}, has {facts[4]}")
        for record in self.records:
            if record.id and self.topology.slot_of_id(record.id) != slot or record.id in jobs:
                continue
            if record.id and record.acknowledged_ns and not (record.delete_sent or record.dead_ns):
                if record.acknowledged_ns < safe_until_ns:
                    raise Violation(f"slot {slot} does not find job {record.id}, put at {record.acknowledged_ns}")
                record.dead_ns = now_ns
            elif not record.acknowledged_ns and safe_until_ns < NEVER_NS:
                record.delete_sent = True  # it may have been put, and its answer be on its way

    # ---------------------------------------------------------------- at the end
    def check_against(self, slot: int, jobs: dict[int, bytes]) -> None:
        """What an owner has, against what clients were told."""
        for id_, body in jobs.items():
            record = self.records[_number(body)]
            self._learn_id(record, id_)
            if record.body != body or record.refused or record.deleted_ns or record.dead_ns:
                raise Violation(f"slot {slot} has job {id_}, which should not be there")
        for record in self.records:
            if not record.id or not record.acknowledged_ns or self.topology.slot_of_id(record.id) != slot:
                continue
            if not record.delete_sent and not record.dead_ns and record.id not in jobs:
                raise Violation(f"slot {slot} has lost job {record.id}")


def _number(body: bytes) -> int:
    return int(body[1 : body.index(b".")])
