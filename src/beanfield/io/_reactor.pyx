# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False, binding=False
"""The reactor in C, by way of Cython. The rules are in its twin, beanfield.io.reactor, and one suite runs against both.

What is different here is only how:
- A handle is an index into an array of small structs. What epoll carries for it is a token: the index, and above it a
  serial that grows whenever the handle is given up; so an event for an earlier owner of the handle is known as stale.
- Any call into the core may add handles, which moves the array: after it an entry is looked up again by its token.
- Received bytes go through one buffer; a bytes object is made of exactly what came.
- The pieces of a flush are linked per handle in an array beside the outbox and sent from where they are. Only what the
  socket did not take is kept: references to the pieces, no copies.
- The GIL is given up for a poll, not for recv and send, which do not block.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EAGAIN, EINTR, ENOSYS, EPERM, errno
from libc.limits cimport INT_MAX
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec
from posix.unistd cimport close

import os

from beanfield.constants import CLIENT_RECEIVE_BYTES as _CLIENT_RECEIVE_BYTES
from beanfield.constants import EVENTS_PER_TURN_MAX as _EVENTS_PER_TURN_MAX
from beanfield.constants import LINK_RECEIVE_BYTES as _LINK_RECEIVE_BYTES
from beanfield.constants import NEVER_NS as _NEVER_NS
from beanfield.constants import TURN_RECEIVE_BYTES_MAX as _TURN_RECEIVE_BYTES_MAX

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    ssize_t sendmsg(int fd, const msghdr* message, int flags)
    int MSG_NOSIGNAL
    int MSG_OOB

cdef extern from "<sys/ioctl.h>" nogil:
    int ioctl(int fd, unsigned long request, ...)
    unsigned long FIONBIO

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll, epoll_event* events, int events_max, int timeout_ms)
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    int EPOLL_CTL_MOD
    uint32_t EPOLLIN
    uint32_t EPOLLOUT
    uint32_t EPOLLERR
    uint32_t EPOLLHUP
    uint32_t EPOLLRDHUP

cdef extern from *:
    """
    #include <sys/epoll.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    /* By number: the C library may be older than the kernel. The number is the same on every architecture. */
    static int beanfield_epoll_pwait2(int epoll, struct epoll_event *events, int events_max, struct timespec *timeout) {
    #if defined(SYS_epoll_pwait2)
        return (int)syscall(SYS_epoll_pwait2, epoll, events, events_max, timeout, NULL, 0);
    #else
        return (int)syscall(441, epoll, events, events_max, timeout, NULL, 0);
    #endif
    }
    """
    int beanfield_epoll_pwait2(int epoll, epoll_event* events, int events_max, timespec* timeout) nogil

CLIENT = 0
LINK = 1
RAW = 2

cdef enum:
    KIND_CLIENT = 0
    KIND_LINK = 1
    KIND_RAW = 2
    NOTHING = 0  # what a send attempt came to
    SENT_SOME = 1
    SEND_FAILED = 2
    IOVECS_MAX = 1024
    # Flags of an entry; what each means stands at the twin's attributes.
    WATCHED = 1
    PAUSED = 2
    CLOSING = 4
    AT_END = 8
    ENDED = 16
    FAILING = 32
    FAILED = 64
    HUNG = 128
    PUT_OFF = 256
    ATTENDED = 512
    NOTED = 1024

cdef Py_ssize_t CLIENT_BYTES = _CLIENT_RECEIVE_BYTES
cdef Py_ssize_t LINK_BYTES = _LINK_RECEIVE_BYTES
cdef int64_t NEVER = _NEVER_NS
cdef uint32_t READABLE = EPOLLIN
cdef uint32_t WRITABLE = EPOLLOUT
cdef uint32_t BROKEN = EPOLLERR | EPOLLHUP
cdef uint32_t PEER_ENDED = EPOLLRDHUP
cdef uint32_t LEAVING = EPOLLRDHUP | EPOLLERR | EPOLLHUP

# What a socket has not taken yet.
cdef struct Rest:
    PyObject** pieces  # owned references to bytes, pieces[first:end]
    Py_ssize_t first
    Py_ssize_t end
    Py_ssize_t room
    Py_ssize_t offset  # bytes of the first piece that are out
    int64_t unsent

cdef struct Entry:
    int fd  # -1: the handle is free
    uint32_t serial
    uint32_t mask
    uint32_t received  # the turn of the last receive
    uint16_t flags
    uint16_t kind
    int32_t chain_first  # of a flush under way: positions of its pieces in the outbox; -1 outside
    int32_t chain_last
    int32_t next_free
    Rest* rest  # NULL: nothing unsent

# Tokens, first in first out.
cdef struct Queue:
    uint64_t* tokens
    Py_ssize_t first
    Py_ssize_t count
    Py_ssize_t room


cdef inline int64_t clock_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef object error(int number):
    return OSError(number, os.strerror(number))


cdef int queue_push(Queue* queue, uint64_t token) except -1:
    cdef uint64_t* grown
    if queue.first + queue.count == queue.room:
        if queue.first > 0:
            memmove(queue.tokens, queue.tokens + queue.first, queue.count * sizeof(uint64_t))
            queue.first = 0
        if queue.count * 2 > queue.room or queue.room == 0:
            grown = <uint64_t*>realloc(queue.tokens, (queue.room * 2 + 16) * sizeof(uint64_t))
            if grown == NULL:
                raise MemoryError()
            queue.tokens = grown
            queue.room = queue.room * 2 + 16
    queue.tokens[queue.first + queue.count] = token
    queue.count += 1
    return 0


cdef inline uint64_t queue_pop(Queue* queue) noexcept:
    cdef uint64_t token = queue.tokens[queue.first]
    queue.first += 1
    queue.count -= 1
    if queue.count == 0:
        queue.first = 0
    return token


cdef int rest_append(Rest* rest, PyObject* piece) except -1:
    cdef PyObject** grown
    if rest.end == rest.room:
        if rest.first > rest.room // 2:
            memmove(rest.pieces, rest.pieces + rest.first, (rest.end - rest.first) * sizeof(PyObject*))
            rest.end -= rest.first
            rest.first = 0
        else:
            grown = <PyObject**>realloc(rest.pieces, (rest.room * 2 + 4) * sizeof(PyObject*))
            if grown == NULL:
                raise MemoryError()
            rest.pieces = grown
            rest.room = rest.room * 2 + 4
    Py_INCREF(<object>piece)
    rest.pieces[rest.end] = piece
    rest.end += 1
    rest.unsent += PyBytes_GET_SIZE(<object>piece)
    return 0


cdef void rest_free(Rest* rest) noexcept:
    cdef Py_ssize_t i
    for i in range(rest.first, rest.end):
        Py_DECREF(<object>rest.pieces[i])
    free(rest.pieces)
    free(rest)


cdef ssize_t send_vector(int fd, iovec* vector, size_t count) noexcept:
    """Bytes sent, or minus errno."""
    cdef msghdr message
    cdef ssize_t sent
    while True:
        if count == 1:
            sent = send(fd, vector[0].iov_base, vector[0].iov_len, MSG_NOSIGNAL)
        else:
            memset(&message, 0, sizeof(message))
            message.msg_iov = vector
            message.msg_iovlen = count
            sent = sendmsg(fd, &message, MSG_NOSIGNAL)
        if sent >= 0:
            return sent
        if errno != EINTR:
            return -errno


cdef class Reactor:
    cdef int epoll
    cdef Entry* entries
    cdef int32_t count
    cdef int32_t room
    cdef int32_t first_free
    cdef int32_t used
    cdef int32_t closing
    cdef uint32_t turn
    cdef int64_t budget
    cdef int64_t turn_bytes_max
    cdef int events_max
    cdef bint polling
    cdef bint is_full
    cdef bint has_pwait2
    cdef epoll_event* events
    cdef char* buffer
    cdef iovec* vector
    cdef int32_t* links  # of a flush under way: the next piece of the same handle, by position in the outbox
    cdef int32_t* touched
    cdef Py_ssize_t links_room
    cdef Queue attention
    cdef Queue later
    cdef object core
    cdef object client_received
    cdef object clients_received
    cdef list batch_handles
    cdef list batch_pieces
    cdef object client_ended
    cdef object client_failed
    cdef object client_unsent
    cdef object link_received
    cdef object link_ended
    cdef object link_unsent

    def __cinit__(self, int64_t turn_receive_bytes_max=_TURN_RECEIVE_BYTES_MAX, int events_max=_EVENTS_PER_TURN_MAX):
        assert turn_receive_bytes_max > 0
        assert events_max > 0
        self.epoll = -1
        self.first_free = -1
        self.turn = 1
        self.turn_bytes_max = turn_receive_bytes_max
        self.events_max = events_max
        self.has_pwait2 = True
        self.batch_handles = []
        self.batch_pieces = []
        self.events = <epoll_event*>malloc(events_max * sizeof(epoll_event))
        self.buffer = <char*>malloc(max(CLIENT_BYTES, LINK_BYTES))
        self.vector = <iovec*>malloc(IOVECS_MAX * sizeof(iovec))
        if self.events == NULL or self.buffer == NULL or self.vector == NULL:
            raise MemoryError()
        self.epoll = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll < 0:
            raise error(errno)

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.count):
            if self.entries[i].fd >= 0:
                self.give_up(i)
        if self.epoll >= 0:
            close(self.epoll)
        free(self.entries)
        free(self.events)
        free(self.buffer)
        free(self.vector)
        free(self.links)
        free(self.touched)
        free(self.attention.tokens)
        free(self.later.tokens)

    @property
    def full(self):
        return self.is_full

    @property
    def closing_count(self):
        return self.closing

    # ------------------------------------------------------------ handles

    def add(self, int fd, int kind):
        cdef int32_t index
        cdef int one = 1
        cdef Entry* entry
        assert kind == KIND_CLIENT or kind == KIND_LINK or kind == KIND_RAW
        if fd < 0:
            raise ValueError("a descriptor is not negative")
        if kind != KIND_RAW and ioctl(fd, FIONBIO, &one) != 0:
            raise error(errno)
        if self.first_free < 0:
            self.grow()
        index = self.first_free
        entry = &self.entries[index]
        entry.fd = fd
        entry.mask = 0
        entry.received = 0
        entry.flags = 0
        entry.kind = kind
        try:
            self.watch(index)
        except BaseException:
            entry.fd = -1
            raise
        self.first_free = entry.next_free
        self.used += 1
        return index

    def remove(self, int handle):
        if self.open_entry(handle).kind != KIND_RAW:
            raise ValueError(f"handle {handle} is closed, not removed")
        self.give_up(handle)

    def close(self, int handle):
        cdef Entry* entry = self.open_entry(handle)
        if entry.kind == KIND_RAW:
            raise ValueError(f"handle {handle} is removed, not closed")
        if entry.rest == NULL or entry.kind == KIND_LINK:
            self.give_up(handle)
            return
        assert not entry.flags & FAILING
        entry.flags |= CLOSING
        self.closing += 1
        self.watch(handle)

    def pause(self, int handle):
        cdef Entry* entry = self.entry_of(handle)
        if entry.fd >= 0 and not entry.flags & CLOSING:
            entry.flags |= PAUSED
            self.watch(handle)

    def resume(self, int handle):
        cdef Entry* entry = self.entry_of(handle)
        if entry.fd >= 0 and not entry.flags & CLOSING:
            entry.flags &= ~PAUSED
            self.watch(handle)

    def unsent(self, int handle):
        cdef Entry* entry = self.entry_of(handle)
        return 0 if entry.rest == NULL else entry.rest.unsent

    def in_use(self):
        return self.used

    def now_ns(self):
        return clock_ns()

    def shut_down(self):
        cdef int32_t i
        for i in range(self.count):
            if self.entries[i].fd >= 0:
                self.give_up(i)
        if self.epoll >= 0:
            close(self.epoll)
            self.epoll = -1

    cdef Entry* entry_of(self, int handle) except NULL:
        if handle < 0 or handle >= self.count:
            raise ValueError(f"handle {handle} never existed")
        return &self.entries[handle]

    cdef Entry* open_entry(self, int handle) except NULL:
        cdef Entry* entry = self.entry_of(handle)
        if entry.fd < 0 or entry.flags & CLOSING:
            raise ValueError(f"handle {handle} is not open")
        return entry

    cdef inline Entry* living(self, uint64_t token) noexcept:
        """The entry that a token means; NULL if it was closed since."""
        cdef uint32_t index = <uint32_t>token
        cdef Entry* entry = &self.entries[index]
        return NULL if entry.fd < 0 or entry.serial != <uint32_t>(token >> 32) else entry

    cdef inline uint64_t token_of(self, int32_t index) noexcept:
        return <uint64_t>self.entries[index].serial << 32 | <uint32_t>index

    cdef int grow(self) except -1:
        cdef int32_t room = max(16, self.room * 2)
        cdef int32_t i
        cdef Entry* grown = <Entry*>realloc(self.entries, room * sizeof(Entry))
        if grown == NULL:
            raise MemoryError()
        self.entries = grown
        self.room = room
        # Handles are given out from the lowest: callers index arrays by them.
        for i in range(room - 1, self.count - 1, -1):
            memset(&grown[i], 0, sizeof(Entry))
            grown[i].fd = -1
            grown[i].chain_first = -1
            grown[i].next_free = self.first_free
            self.first_free = i
        self.count = room
        return 0

    cdef void give_up(self, int32_t index) noexcept:
        cdef Entry* entry = &self.entries[index]
        cdef epoll_event event
        # Unregistered by hand: close() alone leaves the registration alive while another process has the socket too.
        if entry.flags & WATCHED:
            epoll_ctl(self.epoll, EPOLL_CTL_DEL, entry.fd, &event)
        if entry.flags & CLOSING:
            self.closing -= 1
        if entry.rest != NULL:
            rest_free(entry.rest)
            entry.rest = NULL
        if entry.kind != KIND_RAW:
            close(entry.fd)
        entry.fd = -1
        entry.flags = 0
        entry.serial += 1
        entry.next_free = self.first_free
        self.first_free = index
        self.used -= 1

    cdef int watch(self, int32_t index) except -1:
        """Bring the poll set in line with what is wanted of this handle."""
        cdef Entry* entry = &self.entries[index]
        cdef epoll_event event
        cdef int operation
        cdef uint32_t mask = 0
        if entry.flags & CLOSING:
            mask = WRITABLE
        else:
            if not entry.flags & (PAUSED | AT_END):
                mask = READABLE
            if not entry.flags & ENDED and entry.kind != KIND_RAW:
                mask |= PEER_ENDED
            if entry.rest != NULL:
                mask |= WRITABLE
        if entry.flags & HUNG and not mask & READABLE:
            if not entry.flags & WATCHED:
                entry.mask = mask
                return 0
            operation = EPOLL_CTL_DEL
        elif not entry.flags & WATCHED:
            operation = EPOLL_CTL_ADD
        elif mask != entry.mask:
            operation = EPOLL_CTL_MOD
        else:
            return 0
        event.events = mask
        event.data.u64 = self.token_of(index)
        if epoll_ctl(self.epoll, operation, entry.fd, &event) != 0:
            raise error(errno)
        entry.mask = mask
        if operation == EPOLL_CTL_DEL:
            entry.flags &= ~WATCHED
        else:
            entry.flags |= WATCHED
        return 0

    # ------------------------------------------------------------ sending

    def flush(self, list outbox not None):
        cdef Py_ssize_t length = PyList_GET_SIZE(outbox)
        cdef Py_ssize_t touched_count = 0
        cdef Py_ssize_t i
        cdef int32_t index
        cdef int32_t at
        if length == 0:
            return
        if length % 2 != 0:
            raise ValueError("an outbox holds handles and bytes in turn")
        self.make_links(length // 2)
        try:
            touched_count = self.link_pieces(outbox, length // 2)
            for i in range(touched_count):
                index = self.touched[i]
                at = self.entries[index].chain_first
                self.entries[index].chain_first = -1
                self.send_chain(outbox, index, at)
        except BaseException:
            for i in range(self.count):
                self.entries[i].chain_first = -1
            raise

    cdef int make_links(self, Py_ssize_t pairs) except -1:
        cdef int32_t* links
        cdef int32_t* touched
        if pairs <= self.links_room:
            return 0
        if pairs > INT_MAX // 2:
            raise OverflowError("an outbox of this length was never meant")
        links = <int32_t*>realloc(self.links, 2 * pairs * sizeof(int32_t))
        if links == NULL:
            raise MemoryError()
        self.links = links
        touched = <int32_t*>realloc(self.touched, 2 * pairs * sizeof(int32_t))
        if touched == NULL:
            raise MemoryError()
        self.touched = touched
        self.links_room = 2 * pairs
        return 0

    cdef Py_ssize_t link_pieces(self, list outbox, Py_ssize_t pairs) except -1:
        """Link the pieces of each handle in their order; returns how many handles there are (in self.touched)."""
        cdef Py_ssize_t touched_count = 0
        cdef Py_ssize_t i
        cdef int index
        cdef Entry* entry
        for i in range(pairs):
            index = <object>PyList_GET_ITEM(outbox, 2 * i)
            if not PyBytes_Check(<object>PyList_GET_ITEM(outbox, 2 * i + 1)):
                raise TypeError("an outbox holds handles and bytes in turn")
            entry = self.entry_of(index)
            self.links[i] = -1
            if entry.chain_first < 0:
                entry.chain_first = <int32_t>i
                self.touched[touched_count] = index
                touched_count += 1
            else:
                self.links[entry.chain_last] = <int32_t>i
            entry.chain_last = <int32_t>i
        return touched_count

    cdef int send_chain(self, list outbox, int32_t index, int32_t at) except -1:
        cdef Entry* entry = &self.entries[index]
        cdef PyObject* piece
        cdef Py_ssize_t size
        cdef ssize_t sent
        cdef ssize_t wanted
        cdef size_t pieces
        cdef int32_t scan
        if entry.fd < 0 or entry.flags & (CLOSING | FAILING) or entry.kind == KIND_RAW:
            return 0
        # With an older rest the socket is full; EPOLLOUT will tell when to go on.
        while entry.rest == NULL:
            pieces = 0
            wanted = 0
            scan = at
            while scan >= 0 and pieces < IOVECS_MAX:
                piece = PyList_GET_ITEM(outbox, 2 * scan + 1)
                size = PyBytes_GET_SIZE(<object>piece)
                if size > 0:
                    self.vector[pieces].iov_base = PyBytes_AS_STRING(<object>piece)
                    self.vector[pieces].iov_len = size
                    wanted += size
                    pieces += 1
                scan = self.links[scan]
            if pieces == 0:
                return 0
            sent = send_vector(entry.fd, self.vector, pieces)
            if sent == wanted:
                at = scan
                if at < 0:
                    return 0
                continue
            if sent < 0:
                if sent != -EAGAIN:
                    self.fail(index)
                    return 0
                sent = 0
            return self.keep_rest(outbox, index, at, sent)
        return self.keep_rest(outbox, index, at, 0)

    cdef int keep_rest(self, list outbox, int32_t index, int32_t at, Py_ssize_t sent) except -1:
        """Keep the pieces from `at` on, of which the first `sent` bytes are out; they wait for EPOLLOUT."""
        cdef Entry* entry = &self.entries[index]
        cdef Rest* rest = entry.rest
        cdef PyObject* piece
        cdef Py_ssize_t size
        while at >= 0:
            piece = PyList_GET_ITEM(outbox, 2 * at + 1)
            size = PyBytes_GET_SIZE(<object>piece)
            at = self.links[at]
            if sent >= size:  # out, or empty
                sent -= size
                continue
            if rest == NULL:
                rest = <Rest*>malloc(sizeof(Rest))
                if rest == NULL:
                    raise MemoryError()
                memset(rest, 0, sizeof(Rest))
                entry.rest = rest
            rest_append(rest, piece)
            if sent > 0:
                rest.offset = sent
                rest.unsent -= sent
                sent = 0
        if rest != NULL:
            entry.flags |= NOTED
            self.attend_to(index)
            self.watch(index)
        return 0

    cdef int send_rest(self, int32_t index) except -1:
        """Send until all is out or the socket is full. A failure drops the rest and is told at the next poll."""
        cdef Entry* entry = &self.entries[index]
        cdef Rest* rest = entry.rest
        cdef PyObject* piece
        cdef Py_ssize_t size
        cdef Py_ssize_t i
        cdef ssize_t sent
        cdef ssize_t wanted
        cdef size_t pieces
        cdef int result = NOTHING
        while rest != NULL:
            pieces = 0
            wanted = -rest.offset
            for i in range(rest.first, min(rest.end, rest.first + IOVECS_MAX)):
                piece = rest.pieces[i]
                size = PyBytes_GET_SIZE(<object>piece)
                self.vector[pieces].iov_base = PyBytes_AS_STRING(<object>piece)
                self.vector[pieces].iov_len = size
                wanted += size
                pieces += 1
            self.vector[0].iov_base = <char*>self.vector[0].iov_base + rest.offset
            self.vector[0].iov_len -= rest.offset
            sent = send_vector(entry.fd, self.vector, pieces)
            if sent == -EAGAIN:
                return result
            if sent < 0:
                self.fail(index)
                return SEND_FAILED
            result = SENT_SOME
            rest.unsent -= sent
            rest.offset += sent
            while rest.first < rest.end:
                piece = rest.pieces[rest.first]
                size = PyBytes_GET_SIZE(<object>piece)
                if rest.offset < size:
                    break
                rest.offset -= size
                rest.first += 1
                Py_DECREF(<object>piece)
            if rest.first == rest.end:
                assert rest.unsent == 0
                rest_free(rest)
                rest = NULL
                entry.rest = NULL
            if sent < wanted:
                return result
        return result

    cdef int fail(self, int32_t index) except -1:
        """Nothing can be sent any more. The core hears of it in the next poll, after what can still be read."""
        cdef Entry* entry = &self.entries[index]
        entry.flags |= FAILING
        if entry.rest != NULL:
            rest_free(entry.rest)
            entry.rest = NULL
        if not entry.flags & CLOSING:
            self.attend_to(index)
            self.watch(index)
        return 0

    cdef inline int attend_to(self, int32_t index) except -1:
        if not self.entries[index].flags & ATTENDED:
            queue_push(&self.attention, self.token_of(index))
            self.entries[index].flags |= ATTENDED
        return 0

    # ------------------------------------------------------------ polling

    def poll(self, core, int64_t timeout_ns):
        if self.polling:
            raise RuntimeError("poll() is not reentrant")
        self.polling = True
        self.is_full = True  # until known better: an exception leaves work behind
        self.turn += 1
        self.budget = self.turn_bytes_max
        try:
            if core is not self.core:
                self.take_core(core)
            return self.run(timeout_ns)
        finally:
            self.polling = False

    cdef int take_core(self, core) except -1:
        self.core = core
        self.client_received = getattr(core, "client_received", None)
        self.clients_received = getattr(core, "clients_received", None)
        self.client_ended = getattr(core, "client_ended", None)
        self.client_failed = getattr(core, "client_failed", None)
        self.client_unsent = getattr(core, "client_unsent", None)
        self.link_received = getattr(core, "link_received", None)
        self.link_ended = getattr(core, "link_ended", None)
        self.link_unsent = getattr(core, "link_unsent", None)
        return 0

    cdef list run(self, int64_t timeout_ns):
        cdef int count
        cdef int i
        cdef int leaving = 0
        cdef uint32_t mask
        cdef Entry* entry
        cdef list ready = []
        self.deliver()  # nothing, unless an exception ended the last poll
        if self.attention.count > 0:
            timeout_ns = 0
            self.attend()
        if self.later.count > 0:
            timeout_ns = 0
        count = self.wait(timeout_ns)
        for i in range(count):
            mask = self.events[i].events
            entry = self.living(self.events[i].data.u64)
            assert entry != NULL  # nothing was closed since the wait
            if entry.kind == KIND_RAW:
                if not entry.flags & PAUSED:
                    ready.append(<int32_t><uint32_t>self.events[i].data.u64)
                elif mask & BROKEN:
                    entry.flags |= HUNG
                    self.watch(<int32_t><uint32_t>self.events[i].data.u64)
                self.events[i].events = 0
            elif mask & LEAVING:
                leaving += 1
        if leaving > 0:
            for i in range(count):
                mask = self.events[i].events
                if mask & LEAVING:
                    self.events[i].events = 0
                    self.handle(self.events[i].data.u64, mask)
        if self.later.count > 0:
            self.receive_later()
        for i in range(count):
            if self.events[i].events != 0:
                self.handle(self.events[i].data.u64, self.events[i].events)
        self.deliver()
        self.is_full = count >= self.events_max or self.later.count > 0 or self.attention.count > 0
        return ready

    cdef int wait(self, int64_t timeout_ns) except -1:
        cdef int count
        cdef int problem = 0
        cdef int timeout_ms = -1
        cdef int64_t until = 0
        cdef timespec timeout
        if timeout_ns <= 0:
            # Compiled code never lets go of the GIL by itself, and a thread that works for the log may wait for it.
            with nogil:
                count = epoll_wait(self.epoll, self.events, self.events_max, 0)
                problem = errno
            if count < 0 and problem != EINTR:
                raise error(problem)
            return max(count, 0)
        if timeout_ns < NEVER:
            until = clock_ns() + timeout_ns
        while True:
            if until != 0 and self.has_pwait2:
                timeout.tv_sec = timeout_ns // 1_000_000_000
                timeout.tv_nsec = timeout_ns % 1_000_000_000
                with nogil:
                    count = beanfield_epoll_pwait2(self.epoll, self.events, self.events_max, &timeout)
                    problem = errno
                if count < 0 and (problem == ENOSYS or problem == EPERM):  # an old kernel, or a strict container
                    self.has_pwait2 = False
                    continue
            else:
                if until != 0:
                    timeout_ms = <int>min((timeout_ns + 999_999) // 1_000_000, <int64_t>INT_MAX)
                with nogil:
                    count = epoll_wait(self.epoll, self.events, self.events_max, timeout_ms)
                    problem = errno
            if count >= 0:
                return count
            if problem != EINTR:
                raise error(problem)
            PyErr_CheckSignals()
            if until != 0:
                timeout_ns = max(until - clock_ns(), <int64_t>0)

    cdef int attend(self) except -1:
        """Tell what flush() left unsent, and failures of sends (after the bytes that were there before)."""
        cdef Py_ssize_t i
        cdef uint64_t token
        cdef Entry* entry
        for i in range(self.attention.count):
            token = queue_pop(&self.attention)
            entry = self.living(token)
            if entry == NULL:
                continue
            entry.flags &= ~ATTENDED
            if entry.flags & CLOSING:
                continue
            if entry.flags & FAILING:
                if not entry.flags & FAILED:
                    self.attend_to(<int32_t><uint32_t>token)
                    self.handle(token, BROKEN)
            elif entry.flags & NOTED:
                entry.flags &= ~NOTED
                if entry.rest != NULL:
                    self.tell_unsent(token)
        return 0

    cdef int receive_later(self) except -1:
        cdef Py_ssize_t i
        cdef uint64_t token
        cdef Entry* entry
        for i in range(self.later.count):
            token = queue_pop(&self.later)
            entry = self.living(token)
            if entry == NULL:
                continue
            entry.flags &= ~PUT_OFF
            if not entry.flags & (CLOSING | PAUSED | AT_END):
                self.receive(token, 0)
        return 0

    cdef int handle(self, uint64_t token, uint32_t events) except -1:
        cdef int32_t index = <int32_t><uint32_t>token
        cdef Entry* entry = self.living(token)
        if entry == NULL:
            return 0  # closed by a callback earlier in this batch
        if entry.flags & CLOSING:
            if events & BROKEN or self.send_rest(index) == SEND_FAILED or entry.rest == NULL:
                self.give_up(index)
            return 0
        if entry.flags & (PAUSED | AT_END):
            if events & BROKEN:
                entry.flags |= HUNG
                self.tell_failed(token)
            elif events & PEER_ENDED:
                self.tell_ended(token)
        elif events & (READABLE | LEAVING):
            self.receive(token, events)
        if events & WRITABLE:
            entry = self.living(token)
            if entry != NULL and not entry.flags & CLOSING and entry.rest != NULL:
                if self.send_rest(index) == SENT_SOME:
                    self.watch(index)
                    self.tell_unsent(token)
        return 0

    cdef int receive(self, uint64_t token, uint32_t events) except -1:
        cdef int32_t index = <int32_t><uint32_t>token
        cdef Entry* entry = &self.entries[index]
        cdef ssize_t size
        cdef bint broken
        cdef char urgent
        if entry.received == self.turn:
            return 0
        if entry.kind == KIND_LINK:
            entry = self.in_turn(token)
            if entry == NULL or entry.flags & PAUSED:
                return 0
        if self.budget <= 0:
            if not entry.flags & PUT_OFF:
                queue_push(&self.later, token)
                entry.flags |= PUT_OFF
            return 0
        entry.received = self.turn
        broken = entry.flags & FAILING or events & BROKEN
        while True:
            size = recv(entry.fd, self.buffer, CLIENT_BYTES if entry.kind == KIND_CLIENT else LINK_BYTES, 0)
            if size >= 0 or errno != EINTR:
                break
        if size > 0:
            self.budget -= size
            if entry.kind == KIND_LINK:
                self.link_received(index, PyBytes_FromStringAndSize(self.buffer, size), clock_ns())
            elif self.clients_received is None:
                self.client_received(index, PyBytes_FromStringAndSize(self.buffer, size), clock_ns())
            else:
                self.batch_pieces.append(PyBytes_FromStringAndSize(self.buffer, size))
                self.batch_handles.append(index)
            return 0
        if size < 0:
            if errno != EAGAIN:
                broken = True
            elif not broken:
                # Readable, and nothing to read: an urgent byte may stand in the way. Nobody here wants it.
                recv(entry.fd, &urgent, 1, MSG_OOB)
                return 0
        entry.flags |= AT_END
        if broken:
            entry.flags |= HUNG
            return self.tell_failed(token)
        return self.tell_ended(token)

    # ------------------------------------------------------------ words to the core

    cdef inline int deliver(self) except -1:
        """What clients have sent, before anything else that the core is told."""
        cdef list handles
        cdef list pieces
        if PyList_GET_SIZE(self.batch_handles) > 0:
            handles = self.batch_handles
            pieces = self.batch_pieces
            self.batch_handles = []
            self.batch_pieces = []
            self.clients_received(handles, pieces, clock_ns())
        return 0

    cdef Entry* in_turn(self, uint64_t token) except? NULL:
        """The entry, when it is its turn to be told of; NULL if the core must hear nothing more of it."""
        cdef Entry* entry
        self.deliver()
        entry = self.living(token)
        return NULL if entry == NULL or entry.flags & CLOSING else entry

    cdef int tell_ended(self, uint64_t token) except -1:
        cdef int32_t index = <int32_t><uint32_t>token
        cdef Entry* entry
        cdef bint told
        entry = self.in_turn(token)
        if entry == NULL:
            return 0
        if entry.kind == KIND_LINK:
            return self.tell_failed(token)  # a link with one end is no link
        told = entry.flags & ENDED
        entry.flags |= ENDED
        self.watch(index)
        if not told:
            self.client_ended(index, clock_ns())
        return 0

    cdef int tell_failed(self, uint64_t token) except -1:
        cdef int32_t index = <int32_t><uint32_t>token
        cdef Entry* entry
        cdef bint told
        entry = self.in_turn(token)
        if entry == NULL:
            return 0
        if not entry.flags & FAILING:
            self.fail(index)
        if entry.kind == KIND_LINK:
            told = entry.flags & FAILED
            entry.flags |= HUNG | AT_END | ENDED | FAILED
            self.watch(index)
            if not told:
                self.link_ended(index, clock_ns())
            return 0
        told = entry.flags & ENDED
        entry.flags |= ENDED
        self.watch(index)
        if not told:
            self.client_ended(index, clock_ns())
            entry = self.living(token)
            if entry == NULL or entry.flags & CLOSING:
                return 0
        if not entry.flags & FAILED:
            entry.flags |= FAILED
            self.client_failed(index, clock_ns())
        return 0

    cdef int tell_unsent(self, uint64_t token) except -1:
        cdef int32_t index = <int32_t><uint32_t>token
        cdef Entry* entry
        cdef int64_t unsent
        entry = self.in_turn(token)
        if entry == NULL:
            return 0
        unsent = 0 if entry.rest == NULL else entry.rest.unsent
        if entry.kind == KIND_CLIENT:
            self.client_unsent(index, unsent, clock_ns())
        else:
            self.link_unsent(index, unsent, clock_ns())
        return 0
