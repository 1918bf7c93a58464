"""Every limit and fixed number of the system, with the assertions that relate them.

Knows nothing of the rest of the project. Units stand at the end of each name. A limit without a sentence that says
what happens when it is reached does not belong here.
"""

from typing import Final

# ---------------------------------------------------------------- time
NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
# "No deadline": later than any reading of the monotonic clock; compares like a time. The largest number that compiled
# code holds without an object: a larger one would be converted at every use.
NEVER_NS: Final = (1 << 62) - 1

# ---------------------------------------------------------------- client protocol (beanstalkd 1.13)
LINE_BYTES_MAX: Final = 224  # with CRLF; a longer line is swallowed and answered BAD_FORMAT
TUBE_NAME_BYTES_MAX: Final = 200
U32_MAX: Final = 4_294_967_295
U64_MAX: Final = 18_446_744_073_709_551_615
RESERVE_TIMEOUT_S_MAX: Final = 2_147_483_647  # above: BAD_FORMAT
JOB_BYTES_DEFAULT: Final = 65_535  # -z
JOB_BYTES_CEILING: Final = 1_073_741_824  # -z above is cut to this, with a warning
BODY_PIECE_BYTES_MIN: Final = 4_096  # an incomplete body's pieces are joined until they are this long
URGENT_PRIORITY: Final = 1_024  # priorities below count as urgent
MARGIN_NS: Final = 1 * NS_PER_S  # DEADLINE_SOON is possible this long before a deadline
DEFAULT_TUBE: Final = b"default"
DEFAULT_PORT: Final = 11_300
LISTEN_BACKLOG: Final = 4_096  # connections waiting to be accepted; the kernel may allow fewer, and refuses more
UNIX_PATH_BYTES_MAX: Final = 107  # sun_path with its final NUL; a longer path is refused at start

# ---------------------------------------------------------------- ids and topology
ID_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF  # larger ids parse, and never exist
ID_JAVASCRIPT_MAX: Final = 9_007_199_254_740_992  # past it the log warns: JavaScript clients lose digits
PARTITIONS_DEFAULT: Final = 256
PARTITIONS_MAX: Final = 4_096
SLOTS_MAX: Final = 256
FRONTENDS_MAX: Final = 256
CLUSTER_ID_BYTES: Final = 16  # a topology with another length is refused
ROUTES_CACHED_MAX: Final = 16_384  # names whose partition a process remembers; when full, the memory starts anew
TOPOLOGY_BYTES_MAX: Final = 65_536  # a larger topology.json is refused unread

# ---------------------------------------------------------------- sessions
STREAM_COMMANDS_MAX: Final = 64  # commands of one session on their way to one owner; the next waits in the parser
RUN_RESERVES_MAX: Final = 64  # pipelined reserves in one frame
RUN_BODY_BYTES_MAX: Final = 65_536  # a run of grants ends when its bodies reach this, after at least one
CLIENT_UNSENT_BYTES_MAX: Final = 262_144  # with more unsent, nothing more is asked for a session
CLIENT_INPUT_BYTES_MAX: Final = 16_384  # a client with more input that cannot be looked at yet is not read from
CHUNK_BYTES: Final = 65_536  # larger bodies and replies cross a link in pieces of this size
CLIENT_RECEIVE_BYTES: Final = 65_536  # one receive from a client
BODY_MEMORY_DEFAULT: Final = 268_435_456  # --body-memory: half-received and not yet handed-on bodies of one frontend

# ---------------------------------------------------------------- links
LINK_RECEIVE_BYTES: Final = 262_144
FRAME_BYTES_MAX: Final = 262_144  # a longer frame is a peer's fault: the link closes
RECENT_SEATS: Final = 1_024  # of a link, found without a look into its table; a power of two
LINK_UNSENT_BYTES_HIGH: Final = 1_048_576  # above: the owner reads, offers and grants nothing on this link
LINK_UNSENT_BYTES_LOW: Final = 262_144  # below: it goes on
IPC_VERSION: Final = 1

# ---------------------------------------------------------------- turns
JOB_COST_BYTES: Final = 256  # what a job counts for in --memory beside its body: its fields and places in tables
JOBS_PER_TURN_MAX: Final = 1_000  # an owner's turn handles no more; the rest is the next turn's
TURN_RECEIVE_BYTES_MAX: Final = 4_194_304  # received in one turn; the rest stays in the kernel until the next
EVENTS_PER_TURN_MAX: Final = 512

# ---------------------------------------------------------------- reserve over several owners (docs/ipc.md)
HOLD_NS: Final = 100 * NS_PER_MS  # an owner takes a hold back after this
WITHHOLD_NS: Final = 100 * NS_PER_MS  # and withholds a last word no longer
ASK_NS: Final = 100 * NS_PER_MS  # an owner that has not answered ASK in this time is left out of the choice
LAST_WORD_NS: Final = 150 * NS_PER_MS  # last words that stay away longer: the frontend asks anew
WORD_WAIT_NS: Final = 500 * NS_PER_MS  # a last word is waited for at least this long, however short --slot-wait is
SYNC_POLLS: Final = 2  # full polls of the clients before SYNCED: bytes that stand before an end take one of their own
SYNC_NS: Final = 100 * NS_PER_MS  # a link that has not answered SYNC in this time is answered without

# ---------------------------------------------------------------- write-ahead log (docs/wal.md)
SEGMENT_BYTES_DEFAULT: Final = 10_485_760  # -s
SEGMENT_BYTES_MIN: Final = 65_536  # a smaller -s is shown as given and treated as this
SEGMENT_BYTES_MAX: Final = 1_073_741_824  # a larger -s likewise; offsets stay below 2^31
SEGMENT_BLOCK_BYTES: Final = 4_096  # segments are whole blocks
# A record longer than this part of a segment keeps its body in a file of its own, so that the end of a segment that no
# record fits into any more is at most this part of it, and large bodies are never copied.
SEGMENT_PARTS: Final = 16
SYNC_MS_DEFAULT: Final = 50  # -f
LONE_MARK_NS: Final = 20 * NS_PER_MS  # a sync that no batch follows for so long gets a mark of its own
SPACE_RETRY_NS: Final = 500 * NS_PER_MS  # after "disk full" a segment is asked for again, at most so often
WRITE_RETRY_NS: Final = 100 * NS_PER_MS  # after a write found the disk full it is tried again
CLEAN_TURN_JOBS_MAX: Final = 1_000  # jobs copied out of old segments in one turn; the rest is the next turn's
CLEAN_TURN_BYTES_MAX: Final = 1_048_576  # likewise their bytes, after at least one job
LEASE_SEQUENCES: Final = 65_536  # sequences leased at a time; a crash skips what was left of them
REPLAY_PIECE_BYTES: Final = 4_194_304  # read at a time in recovery, between two reports of progress

# ---------------------------------------------------------------- supervision
SLOT_WAIT_S_DEFAULT: Final = 10
HANG_TIMEOUT_S_DEFAULT: Final = 10
ACCEPT_DECLINE_NS: Final = 1 * NS_PER_MS  # a frontend that declines leaves the listener out of its poll set this long
ACCEPT_ANYWAY_NS: Final = 20 * NS_PER_MS  # after declining this long it accepts all the same
ACCEPT_EXHAUSTED_NS: Final = 10 * NS_PER_MS  # out of descriptors, the listener leaves the poll set this long
PING_NS: Final = 1 * NS_PER_S  # the supervisor asks every child for a sign of life this often
PING_LATE_NS: Final = 500 * NS_PER_MS  # a supervisor that wakes up this late counts unanswered pings anew
PINGS_SUSPECT: Final = 2  # with so many unanswered, a frontend's connection count holds no other back from accepting
RESTART_NS_MIN: Final = 100 * NS_PER_MS  # back-off before a restart, doubling ...
RESTART_NS_MAX: Final = 5 * NS_PER_S  # ... up to here
RESTART_FORGET_NS: Final = 10 * NS_PER_S  # after serving this long the back-off begins anew
CRASHES_MAX: Final = 5  # so many crashes within CRASH_WINDOW_NS: a slot is unavailable, a frontend stays out
CRASH_WINDOW_NS: Final = 60 * NS_PER_S
CRASHED_RETRY_NS: Final = 30 * NS_PER_S  # a slot that crashed so often is tried again this often
RELINK_NS: Final = 20 * NS_PER_MS  # a link that ended within RELINK_YOUNG_NS of its making is made again after this
RELINK_YOUNG_NS: Final = 1 * NS_PER_S  # an older one at once
STOP_OWNERS_NS: Final = 500 * NS_PER_MS  # on stop, owners wait this long for the frontends to go first
STOP_KILL_NS: Final = 800 * NS_PER_MS  # on stop, what is left after this long is killed

# Exit codes of a child that cannot start: it is not a crash, and starting it again at once would not help.
EXIT_BAD_OPTION: Final = 64
EXIT_BAD_DATA: Final = 65
EXIT_DISK: Final = 74

assert TOPOLOGY_BYTES_MAX > PARTITIONS_MAX * len("255,") + 1_024
assert LINE_BYTES_MAX == len("pause-tube  4294967295\r\n") + TUBE_NAME_BYTES_MAX
assert FRAME_BYTES_MAX >= 2 * CHUNK_BYTES + RUN_BODY_BYTES_MAX
assert LAST_WORD_NS > WITHHOLD_NS
assert WORD_WAIT_NS > SYNC_NS + WITHHOLD_NS
assert LINK_UNSENT_BYTES_LOW < LINK_UNSENT_BYTES_HIGH
assert RECENT_SEATS & (RECENT_SEATS - 1) == 0  # the last bits of a session's number are its place
assert STREAM_COMMANDS_MAX >= RUN_RESERVES_MAX
assert SEGMENT_BYTES_MIN % SEGMENT_BLOCK_BYTES == 0
assert SEGMENT_BYTES_MAX % SEGMENT_BLOCK_BYTES == 0
