"""Tests that Python's decoders take any bytes: they answer, or raise an error that says what is
wrong (python_targets.py).

LAZYCK_FUZZ_EXAMPLES=N tries N inputs for each decoder, chosen anew in each run. The default is a
few hundred, which never change. tests/fuzz/run.sh SECONDS tries inputs guided by coverage, for as
long as asked.
"""

import json
import os
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="no hypothesis (pip install lazyck[test])")
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.python_targets import CORPUS, TARGETS, corpus, join_words, only_known_errors
from fuzz.seeds import archive
from lazyck import abi
from lazyck.errors import LazyckError
from lazyck.formats.manifest import BlobRecord, Manifest, Recipe, decode, encode
from lazyck.interceptor.compile_commands import export, load
from lazyck.interceptor.log import read_log
from lazyck.postbuild.objects import elf
from lazyck.toolchains import ALL, HOST

EXAMPLES = int(os.environ.get("LAZYCK_FUZZ_EXAMPLES", "0"))
LIBRARY = CORPUS / "elf" / "gnu"
fuzzed = settings(
    max_examples=EXAMPLES or 200,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@st.composite
def damaged(draw: st.DrawFn, whole: list[bytes]) -> bytes:
    """Draw a good file with some numbers overwritten, perhaps cut or lengthened, or sometimes any
    bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(draw(st.sampled_from(whole)))
    numbers = st.one_of(
        st.integers(0, 255).map(lambda n: bytes([n])),
        st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1)).map(lambda n: struct.pack("<I", n)),
        st.one_of(st.integers(0, 9000), st.integers(0, 2**64 - 1)).map(lambda n: struct.pack("<Q", n)),
        st.binary(max_size=12),
    )
    for _ in range(draw(st.integers(1, 6))):
        # Half of the places are at the start, where headers and tables of contents are.
        at = draw(st.one_of(st.integers(0, min(200, len(data))), st.integers(0, len(data))))
        value = draw(numbers)
        data[at : at + len(value)] = value
    if draw(st.booleans()):
        return bytes(data)
    return bytes(data[: draw(st.integers(0, len(data)))]) + draw(st.binary(max_size=8))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "input"


def write(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


@pytest.mark.parametrize("target", TARGETS)
def test_decoder_takes_its_corpus(file: Path, target: str) -> None:
    inputs = corpus(target)
    assert inputs
    for one in inputs:
        TARGETS[target](one.read_bytes(), file)


@pytest.mark.parametrize("target", TARGETS)
def test_decoder_takes_damaged_files(file: Path, target: str) -> None:
    whole = [one.read_bytes() for one in corpus(target)]

    @fuzzed
    @given(damaged(whole))
    def take(data: bytes) -> None:
        TARGETS[target](data, file)

    take()


TEXT = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=20)
WORDS = st.lists(
    st.one_of(
        st.sampled_from([r.text for t in (*ALL, HOST) for r in t.table.rules]),
        st.sampled_from(["-", "--", "@", "-@x", "=", "-Wl,,", "-x", "a.cu", "", "\udcff", "-o"]),
        TEXT,
        st.builds(lambda r, v: r + v, st.sampled_from([r.text for r in HOST.table.rules]), TEXT),
    ),
    max_size=12,
)


@fuzzed
@given(words=WORDS)
def test_option_tables_take_any_words(file: Path, words: list[str]) -> None:
    TARGETS["py_words"](join_words(words), file)


# -- what fuzzing has found, or reading for it -----------------------------------------------------


def refused(read: Callable[[], object], reason: str) -> None:
    """Check that `read` refuses its input for `reason`, in little time and memory."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(LazyckError, match=reason):
        read()
    assert time.process_time() - start < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


def test_lists_that_share_a_long_string_do_not_spell_out_terabytes() -> None:
    recipe = Recipe("host", "id", "", (), ("x" * 100_000,) * 100_000, (), ())
    data = encode(Manifest("d", "", "", "", (), (recipe,), ()))
    assert len(data) < 600_000
    refused(lambda: decode(data, "m"), "repeats itself without end")


def test_blobs_that_share_their_symbols_are_refused() -> None:
    blobs = tuple(BlobRecord(f"b{i}", "s", 0, "", (f"s{i}",)) for i in range(3000))
    whole = encode(Manifest("d", "", "", "", (), (Recipe("", "", "", (), (), (), ()),), blobs))
    data = bytearray(whole)
    at = struct.unpack_from("<I", data, 8 + 6 * 4)[0]
    for i in range(3000):
        struct.pack_into("<2I", data, at + 24 * i + 16, 0, 3000)
    refused(lambda: decode(bytes(data), "m"), "symbols")
    assert len(decode(whole, "m").blobs) == 3000


@pytest.mark.parametrize("size", [b"-60", b"-1", b"9999999999", b"1_0", b"\xb2"])
def test_archive_member_of_an_odd_size_is_refused(tmp_path: Path, size: bytes) -> None:
    data = b"!<arch>\n" + b"%-16s%-12d%-6d%-6d%-8s%-10s`\n" % (b"a.o/", 0, 0, 0, b"644", size) + b"x" * 20
    refused(lambda: elf.read_archive(write(tmp_path / "a", data)), "damaged archive|cut short")


@pytest.mark.parametrize("magic", [b"!<arch>\n", b"!<thin>\n"])
def test_archive_member_with_a_nul_in_its_name_is_refused(tmp_path: Path, magic: bytes) -> None:
    refused(lambda: elf.read_archive(write(tmp_path / "a", archive(magic, (b"a\0.o/", b"x")))), "damaged archive")


def test_section_larger_than_its_file_costs_no_memory(tmp_path: Path) -> None:
    data = bytearray(LIBRARY.read_bytes())
    at, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    for i in range(count):
        struct.pack_into("<Q", data, at + 64 * i + 32, 1 << 60)
    with only_known_errors():
        assert len(elf.read_section(write(tmp_path / "a", bytes(data)), ".dynsym") or b"") <= len(data)


def test_names_that_overlap_do_not_spell_out_terabytes(tmp_path: Path) -> None:
    names, count = b"x" * 200_000 + b"\0", 60_000
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, count, 1)
    row = struct.pack("<IIQQQQIIQQ", 0, 1, 0, 0, 64 + 64 * count, len(names), 0, 0, 0, 0)
    refused(lambda: elf.open_image(write(tmp_path / "a", header + row * count + names)), "repeat themselves")


@pytest.mark.parametrize("where", ["arguments", "file", "directory", "output"])
def test_half_of_a_surrogate_pair_is_no_word_of_a_command(tmp_path: Path, where: str) -> None:
    entry = {"directory": "/d", "file": "a.cpp", "arguments": ["c++"], "output": "a.o"}
    entry[where] = ["\ud800"] if where == "arguments" else "\ud800"
    refused(lambda: load(write(tmp_path / "c.json", json.dumps([entry]).encode())), "not a compile command")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '[{"directory": "/", "file": "dev/null", "arguments": [[]]}]',
        '[{"directory": "/", "file": "dev/null", "arguments": ["c++"], "output": ["a.o"]}]',
    ],
    ids=["deep", "list as a word", "list as an output"],
)
def test_earlier_compile_commands_that_are_not_ours_are_replaced(tmp_path: Path, text: str) -> None:
    target = write(tmp_path / "compile_commands.json", text.encode())
    assert export(tmp_path / "none", target) == 0
    assert load(target) == []


@pytest.mark.parametrize("digits", ["²", "9" * 5000], ids=["superscript", "more than int() takes"])
def test_log_line_with_digits_that_are_no_number_is_left_out(tmp_path: Path, digits: str) -> None:
    assert read_log(write(tmp_path / "log", f"defer\tblob\tc++\ta.o\ta.c\t{digits}\t1\n".encode())) == []


@pytest.mark.parametrize("member", ["/dev/null", "fifo"])
def test_thin_archive_whose_member_is_no_plain_file_is_refused(tmp_path: Path, member: str) -> None:
    """Reading /dev/zero or a FIFO would never end."""
    os.mkfifo(tmp_path / "fifo")
    writer = os.open(tmp_path / "fifo", os.O_RDWR | os.O_NONBLOCK)
    try:
        data = archive(b"!<thin>\n", (member.encode() + b"/", b""))
        refused(lambda: elf.read_archive(write(tmp_path / "a", data)), "not a plain file")
    finally:
        os.close(writer)


def elf_file(sections: list[tuple[int, int, int, int, int]], content: bytes) -> bytes:
    """Return a library of `content` and sections, given as (type, offset in `content`, size, link,
    info). The first section is left empty."""
    table = len(sections) + 1
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, table, 1)
    rows = [struct.pack("<IIQQQQIIQQ", 0, t, 0, 0, 64 * (table + 1) + at, n, a, b, 0, 0) for t, at, n, a, b in sections]
    return header + bytes(64) + b"".join(rows) + content


MANY, LONG = 8000, 2_400_000  # the number of sections, and the bytes that each claims: 19 GB out of a file of 3 MB


def test_dynamic_sections_that_overlap_are_read_once(tmp_path: Path) -> None:
    needed = struct.pack("<qQ", 1, 1) * (LONG // 16)
    names = b"\0x\0"
    sections = [(3, LONG, len(names), 0, 0), *[(6, 0, LONG, 1, 0)] * MANY]
    start = time.process_time()
    found = elf.read_shared(write(tmp_path / "a", elf_file(sections, needed + names)))
    assert len(found.needed) == LONG // 16
    assert time.process_time() - start < 20


def test_index_tables_that_overlap_are_read_once(tmp_path: Path) -> None:
    sections = [(3, 0, 1, 0, 0), (2, 0, 24, 1, 0), *[(18, 0, LONG, 2, 0)] * MANY]
    start = time.process_time()
    elf.read_object(write(tmp_path / "a", elf_file(sections, bytes(LONG))))
    assert time.process_time() - start < 20


def test_relocations_that_overlap_are_refused(tmp_path: Path) -> None:
    image = elf.open_image(
        write(tmp_path / "a", elf_file([(3, 0, 1, 0, 0), *[(4, 0, LONG, 0, 7)] * MANY], bytes(LONG)))
    )
    refused(lambda: sum(1 for _ in image.relocations(7)), "overlap")


def test_manifest_of_many_empty_words_is_refused() -> None:
    """Even empty words cost memory: 20 KB claimed 3 million of them, which took `inspect` 10 s."""
    size = 2501
    words = struct.pack(f"<{size}I", size - 1, *[0] * (size - 1))
    recipes = bytes(36) * 250
    at = 92
    places = (at, at, at, at + len(recipes), at + len(recipes) + len(words), 1)
    total = places[4] + 1
    fields = (abi.MANIFEST_VERSION, total, 0, 0, 250, size, *places, 0, 0, 0, 0, 1, 1, 0, 0, 0)
    data = struct.pack("<8s21I", abi.MANIFEST_MAGIC, *fields) + recipes + words + b"\0"
    refused(lambda: decode(data, "m"), "repeats itself without end")
