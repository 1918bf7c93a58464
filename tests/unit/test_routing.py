"""Routing: the vectors of the design, ids, and topology.json with everything that can be wrong with it."""

import hashlib
import json

import pytest

from beanfield.constants import ID_MAX, PARTITIONS_MAX, ROUTES_CACHED_MAX, SLOTS_MAX, TOPOLOGY_BYTES_MAX
from beanfield.routing import Topology, TopologyError, hash_of_name, parse_topology

CLUSTER_ID = bytes(range(16))

VECTORS = [
    (b"default", [0, 0, 0, 0]),
    (b"a", [0, 13, 141, 653]),
    (b"A", [0, 4, 164, 164]),
    (b"emails", [0, 9, 73, 841]),
    (b"Emails", [0, 11, 187, 699]),
    (b"0", [0, 3, 211, 979]),
    (b"x" * 200, [0, 11, 235, 491]),
    (b"a-b+c/d;e.f$g_h(i)", [0, 6, 102, 102]),
]


@pytest.mark.parametrize(("name", "partitions"), VECTORS)
def test_name_has_the_partition_that_the_design_says(name: bytes, partitions: list[int]) -> None:
    for count, partition in zip([1, 16, 256, 1024], partitions, strict=True):
        topology = Topology(count, 1)
        assert topology.partition_of(name) == partition
        assert topology.partition_of(name) == partition  # now from the cache
        assert partition == (hash_of_name(name) - hash_of_name(b"default")) % count


def test_slot_of_a_name_is_that_of_its_partition() -> None:
    assert [Topology(256, 4).slot_of_name(name) for name, _ in VECTORS] == [
        partitions[2] % 4 for _, partitions in VECTORS
    ]
    topology = Topology(16, 3, [2] * 13 + [0, 1, 2])
    assert [topology.slot_of_name(name) for name in [b"default", b"a", b"A"]] == [2, 0, 2]


def test_names_remembered_are_bounded_and_answers_stay_the_same() -> None:
    topology = Topology(256, 4)
    names = [b"tube-%d" % number for number in range(ROUTES_CACHED_MAX + 100)]
    first = [topology.partition_of(name) for name in names]
    assert [topology.partition_of(name) for name in names] == first
    assert min(first) == 0 and max(first) == 255


# ---------------------------------------------------------------- ids
def test_first_job_of_a_fresh_server_is_1() -> None:
    assert Topology(256, 4).make_id(0, 0) == 1


def test_ids_of_one_partition_count_up_from_1() -> None:
    topology = Topology(1, 1)
    assert [topology.make_id(sequence, 0) for sequence in range(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 256, 1024, 4096])
def test_id_tells_its_partition_slot_and_sequence(partitions: int) -> None:
    topology = Topology(partitions, min(partitions, 3))
    last = (ID_MAX - 1) // partitions - 1
    for sequence in [0, 1, 2, 65_535, last // 2, last]:
        for partition in {0, partitions // 2, partitions - 1}:
            job_id = topology.make_id(sequence, partition)
            assert job_id == sequence * partitions + partition + 1
            assert topology.partition_of_id(job_id) == partition
            assert topology.slot_of_id(job_id) == topology.map[partition]
            assert topology.sequence_of_id(job_id) == sequence


@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 255, 256, 4096])
def test_ids_end_at_63_bits_and_never_wrap(partitions: int) -> None:
    topology = Topology(partitions, 1)
    for partition in {0, partitions // 2, partitions - 1}:
        last = (ID_MAX - 1 - partition) // partitions
        assert topology.make_id(last, partition) == last * partitions + partition + 1 <= ID_MAX
        assert topology.make_id(last + 1, partition) == -1
        assert topology.make_id(ID_MAX, partition) == (ID_MAX if partitions == 0 else -1)
    # The largest id of all belongs to some partition.
    assert topology.make_id((ID_MAX - 1) // partitions, (ID_MAX - 1) % partitions) == ID_MAX


@pytest.mark.parametrize("job_id", [0, -1, -ID_MAX])
def test_id_that_cannot_exist_has_no_slot(job_id: int) -> None:
    topology = Topology(256, 4)
    assert topology.slot_of_id(job_id) == topology.partition_of_id(job_id) == topology.sequence_of_id(job_id) == -1


def test_largest_id_has_a_slot() -> None:
    assert Topology(256, 4).slot_of_id(ID_MAX) == (ID_MAX - 1) % 256 % 4


# ---------------------------------------------------------------- what makes a topology
def test_default_map_deals_partitions_to_slots_in_turn() -> None:
    assert Topology(7, 3).map == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("partitions", "slots", "slots_of_map", "cluster_id", "said"),
    [
        (0, 1, None, CLUSTER_ID, "partitions is 0"),
        (PARTITIONS_MAX + 1, 1, None, CLUSTER_ID, "partitions is 4097"),
        (1, 0, None, CLUSTER_ID, "slots is 0"),
        (4096, SLOTS_MAX + 1, None, CLUSTER_ID, "slots is 257"),
        (4, 5, None, CLUSTER_ID, "5 slots and only 4 partitions"),
        (4, 2, [0, 1, 0], CLUSTER_ID, "map has 3 entries"),
        (4, 2, [0, 1, 0, 2], CLUSTER_ID, "map names slot 2"),
        (4, 2, [0, 1, 0, -1], CLUSTER_ID, "map names slot -1"),
        (4, 2, None, b"short", "cluster_id has 5 bytes"),
    ],
)
def test_topology_that_makes_no_sense_is_refused(
    partitions: int, slots: int, slots_of_map: list[int] | None, cluster_id: bytes, said: str
) -> None:
    with pytest.raises(TopologyError, match=said):
        Topology(partitions, slots, slots_of_map, cluster_id)


def test_map_given_is_copied() -> None:
    given = [0, 1]
    topology = Topology(2, 2, given)
    given[0] = 1
    assert topology.map == [0, 1]


# ---------------------------------------------------------------- topology.json
CANONICAL = (
    b'{"cluster_id":"000102030405060708090a0b0c0d0e0f","format":1,"hash":"blake2b-64-minus-default",'
    b'"map":[0,1,0,1],"partitions":4,"slots":2}'
)


def test_canonical_text_is_fixed_for_ever() -> None:
    topology = Topology(4, 2, None, CLUSTER_ID)
    assert topology.canonical_json() == CANONICAL
    assert topology.fingerprint == hashlib.blake2b(CANONICAL, digest_size=16).digest()
    assert CANONICAL == json.dumps(json.loads(CANONICAL), sort_keys=True, separators=(",", ":")).encode()


def test_fingerprint_tells_topologies_apart() -> None:
    topologies = [
        Topology(4, 2, None, CLUSTER_ID),
        Topology(5, 2, None, CLUSTER_ID),
        Topology(4, 3, None, CLUSTER_ID),
        Topology(4, 2, [1, 0, 1, 0], CLUSTER_ID),
        Topology(4, 2, None, bytes(16)),
    ]
    assert len({topology.fingerprint for topology in topologies}) == len(topologies)
    assert {len(topology.fingerprint) for topology in topologies} == {16}


@pytest.mark.parametrize(
    "topology", [Topology(1, 1), Topology(256, 4, None, CLUSTER_ID), Topology(4096, 256, [255] * 4096, b"\xff" * 16)]
)
def test_topology_comes_back_from_its_text(topology: Topology) -> None:
    text = topology.canonical_json()
    fields = json.loads(text)
    for written in [
        text,
        text + b"\n",
        json.dumps(fields, indent=4).encode(),
        json.dumps(dict(reversed(fields.items()))).encode(),
    ]:
        back = parse_topology(written)
        assert back.canonical_json() == text
        assert back.fingerprint == topology.fingerprint
        assert (back.partitions, back.slots, back.map) == (topology.partitions, topology.slots, topology.map)


def test_text_cut_short_anywhere_is_refused_as_incomplete() -> None:
    for length in range(len(CANONICAL)):
        with pytest.raises(TopologyError, match="it is not complete"):
            parse_topology(CANONICAL[:length])


def test_text_with_one_byte_changed_is_refused_or_another_topology() -> None:
    fingerprint = Topology(4, 2, None, CLUSTER_ID).fingerprint
    for at in range(len(CANONICAL)):
        for byte in b'\0\n 0x9"\\{]\xff':
            if CANONICAL[at] == byte:
                continue
            damaged = CANONICAL[:at] + bytes([byte]) + CANONICAL[at + 1 :]
            try:
                assert parse_topology(damaged).fingerprint != fingerprint
            except TopologyError as error:
                assert str(error)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"format":1', b'"format":2', "format version is 2, this program knows 1"),
        (b'"format":1,', b"", 'the key "format" is missing'),
        (b'"slots":2', b'"slot":2', 'the key "slots" is missing'),
        (b'"slots":2', b'"slots":2,"color":3', 'the key "color" is unknown'),
        (b'"slots":2', b'"slots":2,"slots":2', 'the key "slots" is there twice'),
        (b'"slots":2', b'"slots":"2"', "slots must be a number"),
        (b'"slots":2', b'"slots":[2]', "slots must be a number"),
        (b'"slots":2', b'"slots":9', "9 slots and only 4 partitions"),
        (b'"slots":2', b'"slots":02', "damaged"),
        (b'"slots":2', b'"slots":-2', "damaged"),
        (b'"slots":2', b'"slots":2.0', "damaged"),
        (b'"slots":2', b'"slots":9999999999999999999', "damaged"),
        (b'"slots":2', b'"slots":true', "damaged"),
        (b'"slots":2', b'"slots":2,', "not complete|damaged"),
        (b"blake2b-64-minus-default", b"crc32", 'its hash is "crc32"'),
        (b'"hash":"', b'"hash":3,"x":"', 'the key "x" is unknown'),
        (b"[0,1,0,1]", b"[0,1,0]", "map has 3 entries"),
        (b"[0,1,0,1]", b"[]", "map has 0 entries"),
        (b"[0,1,0,1]", b"[0,1,0,2]", "map names slot 2"),
        (b"[0,1,0,1]", b"7", "map must be a list"),
        (b"[0,1,0,1]", b'["0"]', "damaged"),
        (b"0f", b"0F", "cluster_id must be 32 lower-case hex digits"),
        (b"0f", b"0", "cluster_id must be 32 lower-case hex digits"),
        (b'"000102030405060708090a0b0c0d0e0f"', b"3", "cluster_id must be a string"),
        (b'"partitions":4', b'"partitions":0', "partitions is 0"),
    ],
)
def test_broken_text_is_refused_with_what_is_wrong(old: bytes, new: bytes, said: str) -> None:
    assert CANONICAL.count(old) == 1
    with pytest.raises(TopologyError, match=said):
        parse_topology(CANONICAL.replace(old, new))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not complete"),
        (b"[]", "damaged"),
        (b"{}", "damaged"),
        (b"\xef\xbb\xbf" + CANONICAL, "damaged"),
        (CANONICAL + b"x", "damaged"),
        (CANONICAL + CANONICAL, "damaged"),
        (b" " * (TOPOLOGY_BYTES_MAX + 1), "no topology needs more than"),
    ],
)
def test_text_that_is_no_topology_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(TopologyError, match=said):
        parse_topology(text)


def test_largest_topology_fits_its_limit() -> None:
    topology = Topology(PARTITIONS_MAX, SLOTS_MAX, [SLOTS_MAX - 1] * PARTITIONS_MAX, b"\xff" * 16)
    assert len(topology.canonical_json()) < TOPOLOGY_BYTES_MAX // 2
