"""Library tables: right grammar, units and refusals; each known defect of other tuners has its test."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench import atomic, tables
from collbench.errors import UnansweredError, UsageError
from collbench.installation import Installation
from collbench.records import Rule, Selection
from collbench.tables import intelmpi, mpich, nccl_tuner, openmpi, openmpi_json, reading, ucc
from collbench.tables.coverage import communicators


def rule(algorithm, first, last, **changes):
    base = {"collective": "allreduce", "ranks": 8, "ranks_per_node": 8, "min_bytes": first, "max_bytes": last,
            "provider": "openmpi", "algorithm": algorithm, "sizes": 3, "launches": 1}  # fmt: skip
    return Rule(**{**base, **changes})


def selection(rules, provider="openmpi", **context):
    facts = {"runs": ["made"], "library": provider, "library_version": "5.0.11", "thread_level": "single",
             "memory": ["host"], "dtype": ["float32"], "nodes": [1], "ranks": [8], "ranks_per_node": [8],
             "margin": 0.02, "allowance": 0.01, "settings": {}, "needs": {}}  # fmt: skip
    return Selection(tuple(rules), provider, {**facts, **context})


EXAMPLE = (
    rule("default", 0, 999), rule("ring", 1000, 65536, gain=0.25, component="tuned"),
    rule("rabenseifner", 65537, 1 << 20), rule("default", (1 << 20) + 1, None, basis="unmeasured"),
)  # fmt: skip
NCCL = (
    rule("tree", 0, 65536, provider="nccl", params=(("channels", 2), ("protocol", "ll"))),
    rule("ring", 65537, None, provider="nccl", params=(("channels", 16), ("protocol", "simple"))),
)


@pytest.mark.parametrize("name", ["openmpi", "openmpi-json", "csv", "json", "markdown", "env"])
def test_formats_render_as_their_golden_files(name, golden):
    text = tables.render(selection(EXAMPLE, settings={"X": "1"}), name)
    golden(f"table_{name}{tables.FORMATS[name].suffix}", text)


def test_the_nccl_formats_render_as_their_golden_files(golden):
    golden("table_nccl-tuner.csv", tables.render(selection(NCCL, "nccl"), "nccl-tuner-csv"))
    only_ring = selection(NCCL[1:], "nccl")
    golden("table_nccl-env.sh", tables.render(only_ring, "nccl-env"))


def test_every_format_is_refused_for_another_librarys_rows():
    """A table is never translated from what another library measured."""
    for name in tables.FORMATS:
        if tables.FORMATS[name].provider is None:
            continue
        with pytest.raises(UnansweredError, match="never translated"):
            tables.render(selection((rule("x", 0, None, provider="other"),), "other"), name)


# Open MPI ------------------------------------------------------------------------------------------------


def test_the_open_mpi_file_selects_what_the_rules_say_at_every_border():
    text = tables.render(selection(EXAMPLE), "openmpi")
    for nbytes, number in (
        (0, None),
        (999, None),
        (1000, 4),
        (65536, 4),
        (65537, 6),
        (1 << 20, 6),
        (1 << 21, None),
    ):
        found = openmpi.lookup(text, "allreduce", 8, nbytes)
        assert number == (found.number if found else None)
    assert openmpi.lookup(text, "allreduce", 7, 1000) is None
    assert openmpi.lookup(text, "allreduce", 9, 1000) is None
    assert openmpi.lookup(text, "allreduce", 2, 1000) is None


@pytest.mark.parametrize("name", ["openmpi", "openmpi-json"])
@pytest.mark.parametrize("collective", ["gather", "scatter"])
def test_ranks_of_open_mpi_never_get_the_chance_to_choose_differently(name, collective):
    """Each takes the size from its own send count, which MPI ignores at most ranks: one algorithm for all sizes or none."""
    several = (
        rule("basic_linear", 0, 8191, collective=collective),
        rule("binomial", 8192, None, collective=collective),
    )
    with pytest.raises(UnansweredError, match="one must serve all sizes"):
        tables.render(selection(several), name)
    with_default = (rule("default", 0, 8191, collective=collective), several[1])
    with pytest.raises(UnansweredError, match="one must serve all sizes"):
        tables.render(selection(with_default), name)
    one = (rule("binomial", 0, None, collective=collective),)
    assert "binomial" in tables.render(selection(one), name)


def test_open_mpi_six_gets_its_own_words():
    """The reader drops the file, or crashes, on the names of the published schema; bruck never ends without a fan-out."""
    rules = [rule("butterfly", 0, None, collective="reduce_scatter"),
             rule("ring", 0, None, collective="reduce_scatter_v"), rule("bruck", 0, 4096, collective="allgather"),
             rule("chain", 4097, None, collective="bcast", params=(("fanout", 2), ("segment_bytes", 1024)))]  # fmt: skip
    table = json.loads(tables.render(selection(rules), "openmpi-json"))["collectives"]
    assert set(table) == {"reduce_scatter_block", "reduce_scatter", "allgather", "bcast"}
    assert table["allgather"][0]["rules"] == [
        {"msg_size_min": 0, "msg_size_max": 4096, "alg": "bruck-k-fanout", "faninout": 4}
    ]
    assert table["bcast"][0]["rules"][0] | {"seg_size": 1024, "faninout": 2} == table["bcast"][0]["rules"][0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 2", "not an Open MPI JSON"), ('{"collectives": {"reducescatter": []}}', "drop the file or crash"),
        ('{"collectives": {"bcast": [{"comm_size_max": null, "rules": []}]}}', "no limit"),
        ('{"collectives": {"bcast": [{"comm_size_max": "inf", "rules": []}]}}', "no limit"),
        ('{"collectives": {"bcast": [{"rules": [{"msg_size_min": 0.5, "alg": 1}]}]}}', "no limit"),
    ],
)  # fmt: skip
def test_json_that_open_mpi_would_drop_or_crash_on_is_refused(text, words):
    with pytest.raises(UsageError, match=words):
        openmpi_json.parse(text)


@pytest.mark.parametrize("name", ["openmpi", "openmpi-json"])
def test_a_written_open_mpi_table_is_read_back_as_it_was_decided(name, tmp_path):
    """Stretches, settings it needs, and the variables that load it."""
    path = tmp_path / "table"
    decided = selection(
        (*EXAMPLE, rule("bruck", 0, None, collective="allgather")), needs={"OMPI_MCA_coll": "^han"}
    )
    path.write_text(tables.render(decided, name))
    found = reading.load(
        path, Installation(Path("python"), None, "openmpi", "openmpi", (6, 0), "Open MPI v6")
    )
    assert found.format == name
    assert found.environment == tables.FORMATS[name].activation(str(path), decided)
    assert found.environment["OMPI_MCA_coll"] == "^han"
    own = {(s.collective, s.first, s.last): s.algorithm for s in found.stretches if s.ranks == 8}
    assert own == {
        ("allreduce", 0, 999): "default", ("allreduce", 1000, 65536): "ring",
        ("allreduce", 65537, 1 << 20): "rabenseifner", ("allreduce", (1 << 20) + 1, reading.INFINITY): "default",
        ("allgather", 0, reading.INFINITY): "bruck",
    }  # fmt: skip
    beyond = [s.algorithm for s in found.stretches if s.ranks == 9]
    assert beyond == ["default", "default"]


def test_open_mpi_six_is_sent_to_the_json_format():
    with pytest.raises(UnansweredError, match="openmpi-json"):
        tables.render(selection(EXAMPLE, library_version="6.0.0"), "openmpi")


def test_an_algorithm_that_the_table_does_not_know_is_refused():
    with pytest.raises(UsageError, match="did you mean"):
        tables.render(selection((rule("rings", 0, None),)), "openmpi")


def test_two_shapes_of_one_rank_count_are_refused():
    rules = (rule("ring", 0, None), rule("rabenseifner", 0, None, ranks_per_node=4))
    with pytest.raises(UnansweredError, match="--ranks-per-node"):
        tables.render(selection(rules), "openmpi")


@pytest.mark.parametrize(
    "text",
    [
        "1 2 1 8 2 0 4 0 0", "1 2 1 8 1 5 4 0 0", "1 2 1 8 2 0 4 0 0 0 3 0 0", "hello", "1 2 1 8 1 0 ring 0 0",
        "1 2 1 8 1 0 4 0 0 7", "1 2 2 8 1 0 4 0 0 4 1 0 3 0 0",
    ],
)  # fmt: skip
def test_files_that_open_mpi_would_ignore_without_a_message_are_refused(text):
    """Declared counts that do not fit, a first size other than 0, sizes not ascending, words, leftovers."""
    with pytest.raises(UsageError):
        openmpi.parse(text)


def test_the_published_example_with_wrong_counts_is_refused(shared_dir):
    """ompi-collectives-tuning's own example declares one row too many in each block."""
    text = (shared_dir / "data/decision_files/ompi_collectives_tuning_decision.file").read_text()
    with pytest.raises(UsageError):
        openmpi.parse(text)


RULES = st.lists(st.integers(1, 1 << 40), min_size=0, max_size=6, unique=True).map(sorted)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    borders=RULES, ranks=st.sets(st.integers(2, 300), min_size=1, max_size=4), nbytes=st.integers(0, 1 << 41)
)
def test_every_size_selects_exactly_its_rule_in_the_open_mpi_file(borders, ranks, nbytes):
    names = ("ring", "default", "rabenseifner")
    rules = []
    for p in ranks:
        starts = [0, *borders]
        ends = [b - 1 for b in borders] + [None]
        rules += [
            rule(names[i % 3], a, b, ranks=p, ranks_per_node=p)
            for i, (a, b) in enumerate(zip(starts, ends, strict=True))
        ]
    text = tables.render(selection(rules), "openmpi")
    for p in (*ranks, max(ranks) + 1):
        own = next(
            (
                r
                for r in rules
                if r.ranks == p and r.min_bytes <= nbytes <= (nbytes if r.max_bytes is None else r.max_bytes)
            ),
            None,
        )
        expected = (
            None
            if own is None or own.algorithm == "default"
            else {"ring": 4, "rabenseifner": 6}[own.algorithm]
        )
        found = openmpi.lookup(text, "allreduce", p, nbytes)
        assert expected == (found.number if found else None)


def test_no_value_of_the_run_can_open_a_line_of_its_own():
    """A run name with a line break stays inside the comment."""
    text = tables.render(selection(EXAMPLE, runs=["evil\n1 2 3"]), "openmpi")
    assert not re.search(r"^1 2 3", text, re.MULTILINE)
    openmpi.parse(text)


def test_a_demonstration_is_marked_in_the_header():
    marked = Selection(EXAMPLE, "openmpi", selection(EXAMPLE).context, (), "more ranks than cores at 8 ranks")
    assert "DEMONSTRATION" in tables.render(marked, "openmpi")


# MPICH ---------------------------------------------------------------------------------------------------

OWN = {
    "collective=allreduce": {
        "comm_type=intra": {"algorithm=MPIR_Allreduce_intra_recursive_doubling": {}},
        "comm_type=inter": {"algorithm=MPIR_Allreduce_inter_reduce_exchange_bcast": {}},
    },
    "collective=allgather": {"comm_type=intra": {"algorithm=MPIR_Allgather_intra_ring": {}}},
    "collective=bcast": {"comm_type=intra": {"algorithm=MPIR_Bcast_intra_binomial": {}}},
}


def mpich_rule(algorithm, first, last, **changes):
    return rule(algorithm, first, last, provider="mpich", **changes)


def test_mpich_keeps_every_collective_and_the_branches_it_does_not_tune():
    made = mpich.merge(selection((mpich_rule("ring", 0, None),), "mpich"), OWN)
    assert OWN.keys() == made.keys()
    assert OWN["collective=bcast"] == made["collective=bcast"]
    assert OWN["collective=allreduce"]["comm_type=inter"] == made["collective=allreduce"]["comm_type=inter"]


def test_mpich_chains_end_in_any_and_bound_the_rank_count():
    rules = (mpich_rule("ring", 0, 4096), mpich_rule("recexch", 4097, None))
    intra = mpich.merge(selection(rules, "mpich"), OWN)["collective=allreduce"]["comm_type=intra"]
    assert list(intra) == ["comm_size<=7", "comm_size<=8", "comm_size=any"]
    assert OWN["collective=allreduce"]["comm_type=intra"] == intra["comm_size=any"] == intra["comm_size<=7"]
    assert list(intra["comm_size<=8"]) == ["avg_msg_size<=0", "avg_msg_size<=4096", "avg_msg_size=any"]


def test_mpich_never_asks_for_an_average_size_where_it_would_abort():
    rules = (
        mpich_rule("ring", 0, 4096, collective="allgather"),
        mpich_rule("brucks", 4097, None, collective="allgather"),
    )
    text = json.dumps(mpich.merge(selection(rules, "mpich"), OWN)["collective=allgather"])
    assert "avg_msg_size" not in text
    assert "total_msg_size<=4096" in text


def test_mpich_guards_operators_counts_and_buffers():
    rules = (mpich_rule("reduce_scatter_allgather", 0, 4096), mpich_rule("ring", 4097, None))
    text = json.dumps(mpich.merge(selection(rules, "mpich"), OWN))
    for guard in ("is_op_built_in=no", "count<pow2", "is_commutative=no"):
        assert guard in text


@pytest.mark.parametrize(("dtype", "elements"), [("float32", 1024), ("float64", 512), ("uint8", 4096)])
def test_mpich_counts_gathered_elements_of_the_measured_type(dtype, elements):
    own = {"collective=gather": {"comm_type=intra": {"algorithm=MPIR_Gather_intra_binomial": {}}}}
    rules = (
        mpich_rule("binomial", 0, 4096, collective="gather"),
        mpich_rule("default", 4097, None, collective="gather"),
    )
    intra = mpich.merge(selection(rules, "mpich", dtype=[dtype]), own)["collective=gather"]["comm_type=intra"]
    assert f"total_msg_size<={elements}" in intra["comm_size<=8"]


@pytest.mark.parametrize("dtypes", [["float32", "float64"], [], ["unheard_of"]])
def test_mpich_guesses_no_element_size(dtypes):
    own = {"collective=scatter": {"comm_type=intra": {"algorithm=MPIR_Scatter_intra_binomial": {}}}}
    rules = (mpich_rule("binomial", 0, 4096, collective="scatter"),)
    with pytest.raises(UnansweredError, match="element size is not known"):
        mpich.merge(selection(rules, "mpich", dtype=dtypes), own)


# NCCL ----------------------------------------------------------------------------------------------------


def test_the_nccl_csv_covers_all_sizes_of_all_collectives():
    """Whatever the call, a row with explicit channels matches: otherwise the plugin uses one channel."""
    rows = nccl_tuner.parse(tables.render(selection(NCCL, "nccl"), "nccl-tuner-csv"))
    for name in nccl_tuner.NAMES:
        for nbytes in (0, 1, 65536, 65537, 1 << 33, 2**64 - 1):
            for ranks in (2, 8, 512):
                found = nccl_tuner.lookup(rows, name, nbytes, -(-ranks // 8), ranks)
                assert found is not None
                assert found.channels >= 1
    assert nccl_tuner.lookup(rows, "allreduce", 65536, 1, 8).algorithm == "tree"
    assert nccl_tuner.lookup(rows, "allreduce", 65537, 1, 8).algorithm == "ring"
    assert nccl_tuner.lookup(rows, "allreduce", 8 << 30, 1, 8).algorithm == "ring"


@pytest.mark.parametrize(
    "line",
    [
        "allreduce,0,100,ring,simple,-1,1,8,-1,-1", "all_reduce,0,100,ring,simple,4,1,8,-1,-1",
        "allreduce,0,100,rings,simple,4,1,8,-1,-1", "allreduce,0,100,ring,Simple,4,1,8,-1,-1",
        "broadcast,0,100,tree,simple,4,1,8,-1,-1", "allreduce,0,100,pat,simple,4,1,8,-1,-1",
        "allreduce,0,100,ring,simple", "allreduce,100,0,ring,simple,4,1,8",
        "allreduce,0,18446744073709551616,ring,simple,4,1,8",
        "allreduce,0,x,ring,simple,4,1,8", " # not in column 0", "allreduce,0,1,ring,simple,4,1,8,-1,-1" + " " * 250,
    ],
)  # fmt: skip
def test_lines_that_the_plugin_would_quietly_misread_are_refused(line):
    with pytest.raises(UsageError):
        nccl_tuner.parse(line + "\n")


def test_ncclstuner_cannot_say_default_and_says_so():
    rules = (rule("default", 0, None, provider="nccl"),)
    with pytest.raises(UnansweredError, match="own choice"):
        tables.render(selection(rules, "nccl"), "nccl-tuner-csv")


def test_nccl_env_knows_no_sizes():
    with pytest.raises(UnansweredError, match="no sizes"):
        tables.render(selection(NCCL, "nccl"), "nccl-env")


# Others --------------------------------------------------------------------------------------------------


def ucc_rule(algorithm, first, last, **changes):
    return rule(algorithm, first, last, provider="ucc", **changes)


def test_ucc_tokens_follow_its_grammar():
    """The string that UCC 1.8.0 was seen to take, rule by rule; the default leaves a hole."""
    rules = [ucc_rule("dbt", 0, 4096, ranks=4), ucc_rule("default", 4097, 65539, ranks=4),
             ucc_rule("ring", 65540, None, ranks=4), ucc_rule("knomial", 0, 4096, ranks=4, collective="reduce_scatter"),
             ucc_rule("ring", 4097, None, ranks=4, collective="reduce_scatter"),
             ucc_rule("ring", 0, None, ranks=4, collective="reduce_scatter_v")]  # fmt: skip
    made = selection([*rules, ucc_rule("dbt", 0, None, ranks=5, ranks_max=7)], "ucc")
    assert ucc.tokens(made) == [
        "allreduce:0-4096:host:[4-4]:inf:@dbt", "allreduce:65540-inf:host:[4-4]:inf:@ring",
        "allreduce:0-inf:host:[5-7]:inf:@dbt", "reduce_scatter:0-1024:host:[4-4]:inf:@knomial",
        "reduce_scatter:1025-inf:host:[4-4]:inf:@ring", "reduce_scatterv:0-inf:host:[4-4]:inf:@ring",
    ]  # fmt: skip
    assert all(ucc.TOKEN.fullmatch(token) for token in ucc.tokens(made))
    assert "UCC_LOG_LEVEL=debug" in tables.render(made, "ucc")


@pytest.mark.parametrize(
    ("collective", "first", "last", "expected"),
    [
        ("allreduce", 1000, 1000, ["1000-1001"]), ("allreduce", 0, 0, ["0-1"]),
        ("reduce_scatter", 8, 8, ["1-2"]), ("reduce_scatter", 9, 15, []), ("reduce_scatter", 9, None, ["2-inf"]),
    ],
)  # fmt: skip
def test_a_range_of_ucc_has_two_different_ends(collective, first, last, expected):
    """UCC refuses ``a-a``, and with it the whole string; a block between two sizes has no token."""
    made = selection([ucc_rule("ring", first, last, collective=collective)], "ucc")
    assert [token.split(":")[1] for token in ucc.tokens(made)] == expected


@pytest.mark.parametrize(
    ("rules", "context", "words"),
    [
        ([ucc_rule("knomial", 0, None, collective="gather")], {}, "none at all"),
        ([ucc_rule("tree", 0, None)], {}, "it knows knomial"),
        ([ucc_rule("knomial", 0, None, params=(("radix", 4),))], {}, "parameters"),
        ([ucc_rule("ring", 0, None)], {"memory": ["cuda", "host"]}, "one kind of memory"),
        ([ucc_rule("ring", 0, None), ucc_rule("ring", 0, None, ranks_per_node=4)], {}, "--ranks-per-node"),
        ([ucc_rule("hybrid", 0, 9, collective="alltoallv"), ucc_rule("pairwise", 10, None, collective="alltoallv")],
         {}, "one algorithm"),
    ],
)  # fmt: skip
def test_what_makes_ucc_drop_the_whole_string_is_refused(rules, context, words):
    with pytest.raises(UnansweredError, match=words):
        ucc.tokens(selection(rules, "ucc", **context))


def intel_rule(algorithm, first, last, **changes):
    return rule(algorithm, first, last, provider="intelmpi", **changes)


def test_intel_ranges_are_inclusive_and_name_no_rank_count():
    """2021.18 ignores the sizes of a range with a rank count."""
    rules = (intel_rule("rabenseifner", 0, 1024), intel_rule("ring", 1025, None),
             intel_rule("default", 0, None, collective="bcast"))  # fmt: skip
    assert intelmpi.variables(selection(rules, "intelmpi")) == {
        "I_MPI_ADJUST_ALLREDUCE": "2:0-1024;8:1025-2147483647"
    }
    assert not tables.FORMATS["intelmpi"].keeps_default


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ((intel_rule("ring", 0, 1024), intel_rule("default", 1025, None)), "leave some sizes"),
        ((intel_rule("ring", 0, None), intel_rule("rabenseifner", 0, None, ranks=16)), "rank counts"),
    ],
)
def test_intel_refuses_what_ranges_cannot_say(rules, words):
    with pytest.raises(UnansweredError, match=words):
        intelmpi.variables(selection(rules, "intelmpi"))


def test_rank_spans_have_no_hole():
    rules = [
        rule("ring", 0, None, ranks=4),
        rule("ring", 0, None, ranks=5, ranks_max=7),
        rule("ring", 0, None),
    ]
    spans = communicators(rules)
    assert [(a, b) for a, b, _ in spans] == [(0, 3), (4, 4), (5, 7), (8, 8), (9, None)]
    assert [len(own) for _, _, own in spans] == [0, 1, 1, 1, 0]


def test_a_file_is_replaced_whole_and_only_when_forced(tmp_path):
    """Never appended to: stale rows would come first and win."""
    path = tmp_path / "deep" / "table.csv"
    atomic.write_text(path, "one\n")
    with pytest.raises(UsageError, match="--force"):
        atomic.write_text(path, "two\n")
    atomic.write_text(path, "two\n", force=True)
    assert path.read_text() == "two\n"
    assert [path] == list(path.parent.iterdir())
