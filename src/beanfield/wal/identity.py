"""The identity file of a slot directory: which server and which slot it belongs to, in lines that a person can read.

    beanfield slot 1
    cluster_id 00112233445566778899aabbccddeeff
    slot 3
    fingerprint 00112233445566778899aabbccddeeff

Written once, when the root is made, and only compared afterwards. Knows no files.
"""

from typing import Final

from mypy_extensions import i64

_FIRST_LINE: Final = "beanfield slot 1"


def encode_identity(cluster_id: bytes, slot: i64, fingerprint: bytes) -> bytes:
    return f"{_FIRST_LINE}\ncluster_id {cluster_id.hex()}\nslot {slot}\nfingerprint {fingerprint.hex()}\n".encode()


def identity_fault(found: bytes, cluster_id: bytes, slot: i64, fingerprint: bytes) -> str:
    """Empty if the file is that of this slot; else what differs, in words for the operator."""
    wanted = encode_identity(cluster_id, slot, fingerprint)
    if found == wanted:
        return ""
    found_lines = found.decode("ascii", "replace").split("\n")
    wanted_lines = wanted.decode("ascii").split("\n")
    if found_lines[0] != wanted_lines[0]:
        return f"does not begin with '{_FIRST_LINE}': it is damaged, or of another version"
    if len(found_lines) != len(wanted_lines):
        return f"has {len(found_lines) - 1} lines, must have {len(wanted_lines) - 1}: it is damaged"
    for index in range(len(wanted_lines)):
        if found_lines[index] != wanted_lines[index]:
            return f"says '{found_lines[index]}', but this slot is '{wanted_lines[index]}'"
    return "differs"
