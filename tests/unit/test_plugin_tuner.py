"""The tuner plugin, compiled and driven through NCCL's own interface by ctypes; no GPU, no NCCL."""

import ctypes as c
import os
import shutil
import subprocess
import sys
import threading

import pytest

from collbench.algorithms.nccl import NATIVE_NUMBERS, PROTOCOLS, TUNABLE, protocols
from collbench.backends.plugin import build, grammar
from collbench.backends.plugin.grammar import TunerRule

pytestmark = pytest.mark.skipif(
    not any(shutil.which(name) for name in ("cc", "gcc", "clang")), reason="no C compiler"
)

ALGORITHMS, PROTOCOL_COUNT = 7, 3
IGNORED = -1.0
LOGGER = c.CFUNCTYPE(None, c.c_int, c.c_ulong, c.c_char_p, c.c_int, c.c_char_p, c.c_char_p)
GET = c.CFUNCTYPE(
    c.c_int, c.c_void_p, c.c_int, c.c_size_t, c.c_int, c.c_void_p, c.c_int, c.c_int, c.c_int,
    c.POINTER(c.c_int),
)  # fmt: skip
END = c.CFUNCTYPE(c.c_int, c.c_void_p)
INIT4 = c.CFUNCTYPE(c.c_int, c.c_size_t, c.c_size_t, c.c_void_p, c.POINTER(c.c_void_p))
INIT5 = c.CFUNCTYPE(
    c.c_int, c.POINTER(c.c_void_p), c.c_uint64, c.c_size_t, c.c_size_t, c.c_void_p, c.c_void_p, c.c_void_p
)


class Tuner4(c.Structure):
    _fields_ = (("name", c.c_char_p), ("init", INIT4), ("get", GET), ("end", END))


class Tuner5(c.Structure):
    _fields_ = (("name", c.c_char_p), ("init", INIT5), ("get", GET), ("end", END))


class Tuner6(c.Structure):
    _fields_ = (*Tuner5._fields_, ("chunk", c.c_void_p))


VERSIONS = {4: Tuner4, 5: Tuner5, 6: Tuner6, 7: Tuner6}


@pytest.fixture(name="library", scope="session")
def _library(tmp_path_factory):
    return build.build(tmp_path_factory.mktemp("plugin") / build.LIBRARY)


class Driver:
    """Does what NCCL does with a tuner: one init per communicator, one call per collective."""

    def __init__(self, library, version=6):
        self.tuner = VERSIONS[version].in_dll(c.CDLL(str(library)), f"ncclTunerPlugin_v{version}")
        self.version = version
        self.log = []
        self._logger = LOGGER(lambda level, *rest: self.log.append((level, rest[-1].decode())))

    def init(self, ranks=8, nodes=1):
        context, log = c.c_void_p(), c.cast(self._logger, c.c_void_p)
        if self.version == 4:
            status = self.tuner.init(ranks, nodes, log, c.byref(context))
        else:
            status = self.tuner.init(c.byref(context), 77, ranks, nodes, log, None, None)
        assert status == 0
        return context

    def ask(self, context, collective, nbytes, *, ignored=(), channels=0):
        """Return (combinations set to 0, channels) after one call."""
        flat = (c.c_float * (ALGORITHMS * PROTOCOL_COUNT))(*range(1, ALGORITHMS * PROTOCOL_COUNT + 1))
        for algorithm, protocol in ignored:
            flat[NATIVE_NUMBERS[algorithm] * PROTOCOL_COUNT + PROTOCOLS.index(protocol)] = IGNORED
        before = list(flat)
        count = c.c_int(channels)
        status = self.tuner.get(
            context, TUNABLE.index(collective), nbytes, 1, c.cast(flat, c.c_void_p), ALGORITHMS,
            PROTOCOL_COUNT, 0, c.byref(count),
        )  # fmt: skip
        assert status == 0
        names = {number: name for name, number in NATIVE_NUMBERS.items()}
        changed = [
            (names[i // PROTOCOL_COUNT], PROTOCOLS[i % PROTOCOL_COUNT])
            for i, (old, new) in enumerate(zip(before, flat, strict=True))
            if old != new
        ]
        assert all(flat[NATIVE_NUMBERS[a] * PROTOCOL_COUNT + PROTOCOLS.index(p)] == 0.0 for a, p in changed)
        return changed, count.value

    def warnings(self):
        return [text for level, text in self.log if level == 2]


@pytest.fixture(name="table")
def _table(tmp_path, monkeypatch):
    def write(rules, measured=None):
        path = tmp_path / "table.txt"
        text = rules if isinstance(rules, str) else grammar.render(rules, measured)
        path.write_text(text)
        monkeypatch.setenv(grammar.TABLE_VARIABLE, str(path))
        return path

    return write


RULES = (
    TunerRule("allreduce", (0, 65536), (8, 8), (1, 1), "tree", "ll"),
    TunerRule("allreduce", (65537, None), (8, 8), (1, 1), "ring", "simple", 16),
    TunerRule("allreduce", (0, None), (16, 31), (2, 3), "nvls_tree", "simple"),
    TunerRule("bcast", (0, None), (8, None), (0, None), "default"),
)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_interface_version_applies_a_matching_rule(library, table, version):
    """The combination of the rule costs nothing, all others keep their cost, at both borders of the range."""
    table(RULES)
    driver = Driver(library, version)
    context = driver.init(8, 1)
    assert driver.tuner.name == b"collbench"
    assert driver.ask(context, "allreduce", 0) == ([("tree", "ll")], 0)
    assert driver.ask(context, "allreduce", 65536) == ([("tree", "ll")], 0)
    assert driver.ask(context, "allreduce", 65537) == ([("ring", "simple")], 16)
    assert driver.ask(context, "allreduce", 2**63) == ([("ring", "simple")], 16)
    assert driver.tuner.end(context) == 0


def test_no_chunk_size_is_imposed(library):
    """The version 6 table's last entry is empty, so NCCL's own chunks stay."""
    assert Driver(library, 6).tuner.chunk is None


def test_where_no_rule_matches_nothing_changes(library, table):
    """Neither a cost nor the number of channels is touched: other collectives, shapes, and the word default."""
    table(RULES)
    driver = Driver(library)
    for (ranks, nodes), collective in (((8, 1), "allgather"), ((8, 1), "bcast"), ((4, 1), "allreduce"),
                                       ((8, 2), "allreduce"), ((32, 4), "allreduce")):  # fmt: skip
        context = driver.init(ranks, nodes)
        for channels in (0, 24):
            assert driver.ask(context, collective, 1 << 20, channels=channels) == ([], channels)
        driver.tuner.end(context)


def test_shapes_are_ranges_of_ranks_and_nodes(library, table):
    """A rule for 16 to 31 ranks on 2 to 3 nodes holds at both ends of both ranges and not beyond."""
    table(RULES)
    driver = Driver(library)
    for shape, expected in (((16, 2), True), ((31, 3), True), ((15, 2), False), ((24, 1), False),
                            ((32, 3), False)):  # fmt: skip
        context = driver.init(*shape)
        assert bool(driver.ask(context, "allreduce", 4096)[0]) == expected
        driver.tuner.end(context)


def test_a_combination_that_nccl_disabled_stays_disabled(library, table):
    """A negative cost is never overwritten, and then the channels are NCCL's too."""
    table(RULES)
    driver = Driver(library)
    context = driver.init(8, 1)
    assert driver.ask(context, "allreduce", 1 << 20, ignored=[("ring", "simple")], channels=3) == ([], 3)
    driver.tuner.end(context)


def test_an_older_nccl_with_a_smaller_cost_table_is_not_overrun(library, table):
    """With fewer algorithms than the rule's number, nothing is written."""
    table([TunerRule("allgather", (0, None), (0, None), (0, None), "pat", "simple")])
    driver = Driver(library)
    context = driver.init(2, 2)
    flat = (c.c_float * 24)(*[5.0] * 24)
    count = c.c_int(0)
    assert driver.tuner.get(context, 2, 8, 1, c.cast(flat, c.c_void_p), 6, 3, 0, c.byref(count)) == 0
    assert list(flat) == [5.0] * 24
    assert driver.tuner.get(context, 99, 8, 1, c.cast(flat, c.c_void_p), 7, 3, 0, c.byref(count)) == 0
    assert driver.tuner.get(context, -1, 8, 1, c.cast(flat, c.c_void_p), 7, 3, 0, c.byref(count)) == 0
    assert list(flat) == [5.0] * 24
    driver.tuner.end(context)


HEAD = grammar.FIRST_LINE + "\n"
MALFORMED = {
    "empty": "",
    "no first line": "rule allreduce * 8 1 ring ll -\n",
    "newer version": "collbench-nccl-table 2\n",
    "garbage": "\x00\x01\x02",
    "csv of the example plugin": "allreduce,0,65536,tree,ll,2,1,8,-1,-1\n",
    "few words": HEAD + "rule allreduce * 8 1 ring ll\n",
    "many words": HEAD + "rule allreduce * 8 1 ring ll - extra\n",
    "unknown collective": HEAD + "rule alltoall * 8 1 ring ll -\n",
    "unknown algorithm": HEAD + "rule allreduce * 8 1 rong ll -\n",
    "unknown protocol": HEAD + "rule allreduce * 8 1 ring LL -\n",
    "impossible pair": HEAD + "rule bcast * 8 1 tree ll -\n",
    "impossible protocol": HEAD + "rule allreduce * 8 1 nvls ll -\n",
    "default with protocol": HEAD + "rule allreduce * 8 1 default ll -\n",
    "backward range": HEAD + "rule allreduce 9-8 8 1 ring ll -\n",
    "negative": HEAD + "rule allreduce -1-8 8 1 ring ll -\n",
    "suffix": HEAD + "rule allreduce 0-64K 8 1 ring ll -\n",
    "too large": HEAD + "rule allreduce 0-18446744073709551616 8 1 ring ll -\n",
    "zero channels": HEAD + "rule allreduce * 8 1 ring ll 0\n",
    "many channels": HEAD + "rule allreduce * 8 1 ring ll 65\n",
    "minus one channels": HEAD + "rule allreduce * 8 1 ring ll -1\n",
    "overlap": HEAD + "rule allreduce 0-8 8 1 ring ll -\nrule allreduce 8-9 8 1 tree ll -\n",
    "overlap of shapes": HEAD + "rule allreduce * 8 1 ring ll -\nrule allreduce 5 8- 1- tree ll -\n",
    "unknown fact": HEAD + "measured weather fine\n",
    "NUL byte": HEAD + "rule allreduce * 8 1 ring ll -\0\n",
}  # fmt: skip


@pytest.mark.parametrize("fault", MALFORMED)
def test_a_malformed_table_is_refused_aloud_and_the_default_kept(library, table, fault):
    """NCCL's log names the file, no rule applies, and Python's parser refuses the same text."""
    path = table(MALFORMED[fault])
    driver = Driver(library)
    context = driver.init(8, 1)
    assert len(driver.warnings()) == 1
    assert "table refused" in driver.warnings()[0]
    assert str(path) in driver.warnings()[0]
    assert driver.ask(context, "allreduce", 8, channels=5) == ([], 5)
    driver.tuner.end(context)
    with pytest.raises(grammar.UsageError):
        grammar.parse(MALFORMED[fault])


def test_a_refusal_names_the_line(library, table):
    """The message leads the user to the fault."""
    path = table(HEAD + "\n# fine\nrule allreduce * 8 1 ring ll -\nrule allreduce 1 eight 1 ring ll -\n")
    driver = Driver(library)
    driver.tuner.end(driver.init())
    assert f"{path}, line 5: ranks are not a range" in driver.warnings()[0]


def test_without_a_table_or_with_a_missing_file_the_default_stays(library, monkeypatch, tmp_path):
    """The plugin says so and changes nothing."""
    driver = Driver(library)
    for value, words in ((None, "names no table"), (str(tmp_path / "no"), "No such file"),
                         (str(tmp_path), "Is a directory")):  # fmt: skip
        driver.log.clear()
        if value is None:
            monkeypatch.delenv(grammar.TABLE_VARIABLE, raising=False)
        else:
            monkeypatch.setenv(grammar.TABLE_VARIABLE, value)
        context = driver.init()
        assert words in driver.warnings()[0]
        assert driver.ask(context, "allreduce", 8, channels=5) == ([], 5)
        driver.tuner.end(context)


def _child(library, code, env=None):
    program = code.replace("LIBRARY", repr(str(library)))
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **(env or {})}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip


INIT_TWICE = """
import ctypes as c
lib = c.CDLL(LIBRARY)
words = (c.c_void_p * 4).in_dll(lib, "ncclTunerPlugin_v5")
pointer, size = c.c_void_p, c.c_size_t
init = c.CFUNCTYPE(c.c_int, pointer, c.c_uint64, size, size, pointer, pointer, pointer)(words[1])
for _ in range(2):
    context = c.c_void_p()
    assert init(c.addressof(context), 1, 8, 1, None, None, None) == 0
"""


def test_a_refusal_reaches_stderr_once_although_nccl_is_silent(library, table):
    """NCCL prints no warning unless NCCL_DEBUG is set, so the plugin itself speaks, once per process."""
    table("nonsense\n")
    done = _child(library, INIT_TWICE)
    assert done.stderr.count("table refused") == 1


def test_versions_measured_elsewhere_are_warned_about(library, table):
    """A table from another NCCL, network plugin or driver says so; nothing is loaded here, so all are unknown."""
    table(RULES, {"nccl": "2.27.3", "net": "libnccl-net-ofi.so", "driver": "580.1"})
    done = _child(library, INIT_TWICE, {"NCCL_NET_PLUGIN": ""})
    assert "measured under NCCL 2.27.3, here it is unknown" in done.stderr
    assert "measured under network plugin libnccl-net-ofi.so, here it is none" in done.stderr
    assert "measured under driver 580.1" in done.stderr


@pytest.mark.parametrize(("code", "warned"), [(22703, False), (23002, True)])
def test_the_loaded_nccl_is_asked_for_its_version(library, table, tmp_path, code, warned):
    """The version comes from the libnccl that the process has loaded, although its symbols are not global."""
    source = tmp_path / "nccl.c"
    source.write_text(f"int ncclGetVersion(int* v) {{ *v = {code}; return 0; }}\n")
    nccl = tmp_path / "libnccl.so.2"
    subprocess.run([build.compiler(), "-shared", "-fPIC", "-o", str(nccl), str(source)], check=True)
    table(RULES, {"nccl": "2.27.3"})
    done = _child(library, f"import ctypes as c\nkeep = c.CDLL({str(nccl)!r})\n{INIT_TWICE}")
    assert ("here it is 2.30.2" in done.stderr) == warned


def test_a_large_table_answers_every_size_as_the_python_parser_does(library, table):
    """100 000 rules: the binary search finds what a scan of the table finds, between and outside the rules too."""
    pairs = [(a, p) for a in ("ring", "tree") for p in PROTOCOLS]
    rules = tuple(
        TunerRule("allreduce", (i * 100, i * 100 + 49), (8, 8), (1, 1), *pairs[i % 6]) for i in range(100_000)
    )
    table(rules)
    driver = Driver(library)
    context = driver.init(8, 1)
    for nbytes in (0, 49, 50, 99, 100, 4_999_949, 4_999_950, 9_999_900, 9_999_949, 9_999_950, 2**40):
        index, rest = divmod(nbytes, 100)
        expected = [pairs[index % 6]] if rest < 50 and index < 100_000 else []
        assert driver.ask(context, "allreduce", nbytes)[0] == expected
    driver.tuner.end(context)


def test_communicators_may_be_used_and_created_by_many_threads(library, table):
    """Eight threads create, ask and end communicators of different shapes; each gets the answers of its own."""
    table(RULES)
    driver = Driver(library)
    wrong = []

    def work(ranks, nodes, expected):
        for _ in range(100):
            context = driver.init(ranks, nodes)
            if driver.ask(context, "allreduce", 100)[0] != expected:
                wrong.append((ranks, nodes))
            driver.tuner.end(context)

    shapes = [
        (8, 1, [("tree", "ll")]),
        (16, 2, [("nvls_tree", "simple")]),
        (5, 1, []),
        (31, 3, [("nvls_tree", "simple")]),
    ]
    threads = [threading.Thread(target=work, args=shape) for shape in shapes * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


ALLOCATIONS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
static long count;
static void* (*real_malloc)(size_t);
static void* (*real_calloc)(size_t, size_t);
static void* (*real_realloc)(void*, size_t);
static void setup(void) {
  if (real_realloc) return;
  real_malloc = dlsym(RTLD_NEXT, "malloc");
  real_realloc = dlsym(RTLD_NEXT, "realloc");
}
void* malloc(size_t n) { setup(); count++; return real_malloc(n); }
void* realloc(void* p, size_t n) { setup(); count++; return real_realloc(p, n); }
typedef int (*get_t)(void*, int, size_t, int, float**, int, int, int, int*);
typedef int (*init_t)(void**, uint64_t, size_t, size_t, void*, void*, void*);
int main(int argc, char** argv) {
  (void)argc;
  void** plugin = dlsym(dlopen(argv[1], RTLD_NOW), "ncclTunerPlugin_v5");
  void* context;
  float cost[21];
  int channels = 0;
  long before = count;
  ((init_t)plugin[1])(&context, 1, 8, 1, NULL, NULL, NULL);
  if (count == before) return 3; /* the counter must see the init's own allocations */
  before = count;
  for (size_t i = 0; i < 100000; i++) {
    for (int k = 0; k < 21; k++) cost[k] = 1.0f;
    if (((get_t)plugin[2])(context, (int)(i % 6), i * 7, 1, (float**)(void*)cost, 7, 3, 0, &channels)) return 4;
  }
  return count == before ? 0 : 5;
}
"""


def test_a_call_allocates_nothing(library, table, tmp_path):
    """A C program that counts malloc and realloc drives 100 000 calls."""
    table(RULES)
    source, program = tmp_path / "count.c", tmp_path / "count"
    source.write_text(ALLOCATIONS)
    subprocess.run([build.compiler(), "-O1", "-o", str(program), str(source), "-ldl"], check=True)
    assert subprocess.run([str(program), str(library)], timeout=60, check=False).returncode == 0


def test_c_and_python_accept_the_same_combinations(library, table):
    """Each collective × algorithm × protocol is either refused by both parsers or applied by the plugin."""
    driver = Driver(library)
    for collective in TUNABLE:
        for algorithm in NATIVE_NUMBERS:
            for protocol in PROTOCOLS:
                driver.log.clear()
                table(HEAD + f"rule {collective} * * * {algorithm} {protocol} -\n")
                context = driver.init()
                valid = protocol in protocols(collective, algorithm)
                expected = [(algorithm, protocol)] if valid else []
                assert driver.ask(context, collective, 1000)[0] == expected
                assert bool(driver.warnings()) != valid
                driver.tuner.end(context)
