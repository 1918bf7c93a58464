"""The frames that cross a link between a frontend and an owner: opcodes, flags and layout.

This file is the contract between the two role cores; docs/ipc.md draws it. It knows no sockets, no engine and no
client protocol. All words are signed 64-bit little-endian; nothing is padded, and nothing is a C structure.

    word 0   frame_bytes (bits 0-31, whole frame) | opcode (bits 32-39) | flags (bits 40-47) | zero (bits 48-63)
    word 1   session     0: the frame concerns the link itself
    word 2   request     0: the frame asks for no answer (or is not an answer)
    words    the fields of the opcode, in the order of its line below
    body     the rest: a name, a job body or reply text

Sessions are numbered per link from 1 by the frontend and only grow; requests are numbered per session and link
from 1 and only grow, by one each.
"""

from typing import Final

HEADER_BYTES: Final = 24
WORD_BYTES: Final = 8

# ---------------------------------------------------------------- frontend to owner
#                            fields                              body      answer
HELLO: Final = 1  #          version, role, index, generation    fingerprint(16) + run id(16)   WELCOME | ERROR
ATTACH: Final = 2  #         -                                             none (FLAG_DEFAULT: uses and watches default)
DETACH: Final = 3  #         -                                             none
USE: Final = 4  #            -                                   name      REPLY without text
UNUSE: Final = 5  #          -                                             REPLY without text
WATCH: Final = 6  #          -                                   name      REPLY without text
IGNORE: Final = 7  #         -                                   name      REPLY without text
PUT: Final = 8  #            priority, delay_ns, ttr_ns          body      REPLY
PUT_PART: Final = 9  #       body_bytes (whole body)             piece     none; the pieces before a PUT, in order
RESERVE: Final = 10  #       -                                             RESERVED; FLAG_NOWAIT: RESERVED | CANCELLED
RESERVE_RUN: Final = 11  #   count                                         RESERVED (count >= 1) | CANCELLED
ASK: Final = 12  #           -                                             OFFER | EMPTY (FLAG_NOWAIT: LAST will follow)
TAKE: Final = 13  #          priority, created_ns, job id                RESERVED | OFFER | EMPTY (CANCELLED after LAST)
DROP: Final = 14  #          -                                             none; ends the request
LAST: Final = 15  #          -                                             RESERVED | OFFER | CANCELLED
RESERVE_JOB: Final = 16  #   job id                                        RESERVED | REPLY
DELETE: Final = 17  #        job id                                        REPLY (FLAG_ENDED)
RELEASE: Final = 18  #       job id, priority, delay_ns                    REPLY (FLAG_ENDED)
BURY: Final = 19  #          job id, priority                              REPLY (FLAG_ENDED)
TOUCH: Final = 20  #         job id                                        TOUCHED | REPLY
KICK: Final = 21  #          bound                                         REPLY
KICK_JOB: Final = 22  #      job id                                        REPLY
PEEK: Final = 23  #          job id                                        REPLY | LARGE
PEEK_READY: Final = 24  #    -                                             REPLY | LARGE
PEEK_DELAYED: Final = 25  #  -                                             REPLY | LARGE
PEEK_BURIED: Final = 26  #   -                                             REPLY | LARGE
STATS_JOB: Final = 27  #     job id                                        REPLY
STATS_TUBE: Final = 28  #    -                                   name      REPLY
PAUSE_TUBE: Final = 29  #    delay_ns                            name      REPLY
LIST_TUBES: Final = 30  #    -                                             LARGE: text is (created_ns, length, name)*
STATS: Final = 31  #         -                                             REPLY without text, once the links are synced
MORE: Final = 32  #          -                                             CHUNK; request is that of the LARGE reply
SYNCED: Final = 33  #        sync number                                   none

# ---------------------------------------------------------------- owner to frontend
#                            fields                              body
WELCOME: Final = 64  #       version, slot, generation           fingerprint(16) + run id(16)
ERROR: Final = 65  #         code                                message; the sender closes the link after it
REPLY: Final = 66  #         count                               text of `count` replies, to request and those after it
RESERVED: Final = 67  #      count, (job id, remaining_ns)*count text of `count` replies, likewise; a body over
#                            CHUNK_BYTES comes alone, as FLAG_LARGE: one more word (reply_bytes, the whole text) before
#                            the text's first piece
TOUCHED: Final = 68  #       job id, remaining_ns                text
EXPIRED: Final = 69  #       job id                              -; request 0: this reservation is over
OFFER: Final = 70  #         priority, created_ns, job id        -
EMPTY: Final = 71  #         -                                   -
CANCELLED: Final = 72  #     -                                   -
LARGE: Final = 73  #         reply_bytes (the whole text)        the text's first piece, at most CHUNK_BYTES
CHUNK: Final = 74  #         -                                   the next piece; the last one fills reply_bytes
SYNC: Final = 75  #          sync number                         -

FLAG_NOWAIT: Final = 1  # on RESERVE, ASK: the reserve may not wait (timeout 0, or in the margin)
FLAG_DEFAULT: Final = 1  # on ATTACH
FLAG_ENDED: Final = 1  # on REPLY: every reply of the run ended the session's reservation of the job its request named
FLAG_LARGE: Final = 2  # on RESERVED
FLAG_BARE: Final = 4  # on RESERVED: one reply alone, to which the frontend adds its last CRLF
FLAG_AGAIN: Final = 1  # on CANCELLED: like it, but no ground for TIMED_OUT (a job was lost here under a hold while the
#                        request stood here, or its TAKE failed after LAST): with all words in, the frontend asks anew

ROLE_FRONTEND: Final = 1
ROLE_OWNER: Final = 2

# Codes of ERROR
ERROR_VERSION: Final = 1
ERROR_FINGERPRINT: Final = 2
ERROR_RUN_ID: Final = 3
ERROR_ROLE: Final = 4
ERROR_GENERATION: Final = 5
ERROR_FRAME: Final = 6  # malformed: length, opcode, fields, a session never opened, ATTACH after DETACH
