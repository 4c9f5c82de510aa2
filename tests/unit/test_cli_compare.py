"""``collbench compare`` on the command line: exit statuses and the grammar of every format."""

import json
import re
from xml.etree import ElementTree as ET

import pytest

from collbench import variant
from collbench.cli.ab import make_variants
from collbench.errors import UnansweredError, UsageError
from collbench.records import Evidence
from collbench.reports import github, junit
from collbench.results import CASE_COLUMNS
from collbench.sides import cell_id
from collbench.stats import Ratio
from collbench.verdict import Comparison, Rules, Verdict


@pytest.fixture(name="runs")
def _runs(write_run, lines):
    """``a``, and ``b`` with one cell slower, one missing, one added; another kernel."""

    def write(name, cells, kernel):
        out = []
        for number in range(8):
            facts = {"environment": {"kernel": kernel}, "probe": {"pingpong_ns": 90.0}}
            out.append(lines.launch(number, 2, **facts))
            out += [
                lines.cell(number, c, 2, 64, "default", [t * (1 + number / 1000)]) for c, t in cells.items()
            ]
        return write_run(out, name)

    return (
        write("a", {"allreduce": 10.0, "bcast": 5.0, "gather": 3.0}, "6.1"),
        write("b", {"allreduce": 12.0, "bcast": 5.0, "scatter": 4.0}, "6.6 <new> | 100%"),
    )


@pytest.mark.parametrize("form", ["terminal", "markdown", "junit", "github"])
def test_every_text_format_has_its_golden_text(cli, runs, golden, form):
    """The text of each format, whole; the exit status is 1 in all."""
    shown = cli("compare", *runs, "--format", form)
    assert shown == 1
    golden(f"compare_{form}.txt", shown.stdout)


def test_the_summary_is_the_last_line(cli, runs):
    """The last line says the answer, the counts and the exit status, on stderr where stdout is for machines."""
    line = "b against a: SLOWER (1 slower, 1 same, 1 missing, 1 added) [exit 1]"
    assert cli("compare", *runs).stdout.splitlines()[-1] == line
    assert cli("compare", *runs, "--json").stderr.splitlines()[-1] == line
    assert cli("compare", *runs, "--format", "github").stdout.splitlines()[-1] == line


def test_json_is_the_stable_form(cli, runs):
    """{"cells": [{…, "verdict"}], "status"} with all that a program needs."""
    found = json.loads(cli("compare", *runs, "--json").stdout)
    assert found["status"] == 1
    verdicts = {c["cell"]: c["verdict"] for c in found["cells"]}
    assert verdicts == {"allreduce/2/64/default": "slower", "bcast/2/64/default": "same",
                        "gather/2/64/default": "missing", "scatter/2/64/default": "added"}  # fmt: skip
    first = found["cells"][0]
    assert first["ratio_low"] <= first["ratio"] <= first["ratio_high"]
    assert (first["collective"], first["ranks"], first["nbytes"]) == ("allreduce", 2, 64)


INTEGER, DECIMAL = r"\d+", r"\d+(\.\d+)?"
# What two published schemas ask of the elements used here: element → (required attributes, optional ones, children in
# order as a pattern over their tags). Jenkins: junit-10.xsd of the xUnit plugin; Ant: JUnit.xsd of Windy Road.
JENKINS = {
    "testsuites": ({}, {"name", "time", "tests", "failures", "errors"}, r"(testsuite )*"),
    "testsuite": (
        {"name": "", "tests": "", "failures": "", "errors": ""},
        {"group", "time", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url", "version"},
        r"((testsuite|properties|testcase|system-out|system-err) )*",
    ),
    "properties": ({}, set(), r"(property )*"),
    "property": ({"name": "", "value": ""}, set(), r""),
    "testcase": (
        {"name": ""}, {"time", "classname", "group"}, r"((skipped|error|failure|system-out|system-err) )*",
    ),
    "skipped": ({}, {"message", "type"}, r""),
    "error": ({}, {"message", "type"}, r""),
    "failure": ({}, {"message", "type"}, r""),
    "system-out": ({}, set(), r""),
    "system-err": ({}, set(), r""),
}  # fmt: skip
ANT = {
    **JENKINS,
    "testsuites": ({}, set(), r"(testsuite )*"),
    "testsuite": (
        {
            "name": r".+", "tests": INTEGER, "failures": INTEGER, "errors": INTEGER, "time": DECIMAL, "id": INTEGER,
            "package": "", "hostname": r".+", "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
        },
        {"skipped"},
        r"properties (testcase )*system-out system-err ",
    ),
    "property": ({"name": r".+", "value": ""}, set(), r""),
    "testcase": ({"name": "", "classname": "", "time": DECIMAL}, set(), r"((skipped|error|failure) )?"),
    "skipped": ({}, {"message"}, r""),
    "error": ({"type": ""}, {"message"}, r""),
    "failure": ({"type": ""}, {"message"}, r""),
}  # fmt: skip
SUREFIRE_TIME = r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]{0,3})?"


def check_junit(element, schema=None):
    """Check an element and all below it against both schemas, or the given one."""
    if schema is None:
        check_junit(element, JENKINS)
        check_junit(element, ANT)
        for suite in element.iter("testsuite"):
            assert re.fullmatch(SUREFIRE_TIME, suite.get("time"))
        return
    required, optional, children = schema[element.tag]
    assert required.keys() <= set(element.attrib) <= required.keys() | optional, (element.tag, element.attrib)
    for name, pattern in required.items():
        assert not pattern or re.fullmatch(pattern, element.get(name)), (element.tag, name, element.get(name))
    assert re.fullmatch(children, "".join(f"{child.tag} " for child in element)), element.tag
    for child in element:
        check_junit(child, schema)


def test_junit_follows_both_schemas_and_counts(cli, runs):
    """Elements, attributes, their order and types are the schemas'; the counts are those of the cases."""
    root = ET.fromstring(cli("compare", *runs, "--format", "junit").stdout)
    check_junit(root)
    (suite,) = root
    assert [suite.get(n) for n in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    (failure,) = root.iter("failure")
    assert failure.get("type") == "slower"
    assert suite.get("timestamp") == "2026-01-02T03:04:05"


def test_junit_of_a_long_time_and_no_date_follows_both_schemas(cli, write_run, lines):
    """A suite of thousands of seconds, a run that does not say when it began, no difference and no fault: valid."""
    rows = []
    for number in range(8):
        rows.append(lines.launch(number, 2, probe={"pingpong_ns": 90.0}))
        rows.append(lines.cell(number, "bcast", 2, 64, "default", [12_345_678_900.0 + number]))
    path = write_run(rows, "slow", started=None)
    shown = cli("compare", path, path, "--format", "junit")
    root = ET.fromstring(shown.stdout)
    assert shown == 0
    check_junit(root)
    assert root[0].get("time") == "12345.679"


def test_junit_never_passes_what_cannot_be_answered(cli, runs):
    """Exit 3 is an error in JUnit too, though no cell failed."""
    shown = cli("compare", runs[0], runs[0], "--require-cells", "alltoall/*", "--format", "junit")
    assert shown == 3
    root = ET.fromstring(shown.stdout)
    check_junit(root)
    assert root[0].get("errors") == "1"


def test_junit_replaces_characters_that_xml_cannot_hold():
    """A control character in a library's text does not break the file."""
    assert junit._clean("a\x00b\x1b") == "a\ufffdb\ufffd"


# actions/toolkit packages/core/src/command.ts: ::name key=value,key=value::data
COMMAND = re.compile(
    r"::(error|warning|notice) ((?:title|file|line)=[^,:\r\n]*(?:,(?:title|file|line)=[^,:\r\n]*)*)::([^\r\n]*)"
)


def test_github_lines_follow_the_command_grammar(cli, runs):
    """Each line but the summary is a workflow command; per cents are escaped."""
    lines = cli("compare", *runs, "--format", "github").stdout.splitlines()
    found = [COMMAND.fullmatch(line) for line in lines[:-1]]
    assert all(found)
    assert [m[1] for m in found] == ["error", "error", "notice"]
    assert all("%" not in re.sub("%(25|0A|0D)", "", m[3]) for m in found)


def verdict_of(cell, word, change=1.2):
    return Verdict(cell, {}, word, ratio=Ratio(change, 1.1, 1.3, 8, 0.01), base_s=1e-6, new_s=change * 1e-6)


def test_github_prints_the_worst_first_and_counts_what_it_does_not_show():
    """Ten errors at most over all comparisons, the largest slow-downs among them; the answer is never crowded out."""
    cells = [verdict_of(f"bcast/2/{n}/default", "slower", 1.1 + n / 100) for n in range(12)]
    cells += [verdict_of(f"gather/2/{n}/default", "inconclusive") for n in range(3)]
    unknown = Comparison("a", "c", [verdict_of("bcast/2/8/default", "inconclusive")], Rules())
    printed = github.render([Comparison("a", "b", cells, Rules()), unknown]).splitlines()
    errors = [x for x in printed if x.startswith("::error")]
    assert len(errors) == 10
    assert "cannot say" in errors[0]
    assert "bcast/2/11/default is slower" in errors[1]
    assert errors[-1].endswith("4 further annotations: see the other formats")
    assert sum(x.startswith("::warning") for x in printed) == 4
    assert [x.split(":")[0] for x in printed[-2:]] == ["b against a", "c against a"]


def test_github_summary_is_never_a_command():
    """A run whose name looks like a command does not become one."""
    odd = Comparison("x ##[error]", "::error::y", [verdict_of("bcast/2/8/default", "same")], Rules())
    last = github.render([odd]).splitlines()[-1]
    assert not last.startswith("::")
    assert "##[" not in last


def test_github_escapes():
    """Line ends, per cents, colons and commas are written as GitHub reads them."""
    assert github.command("error", "a: b, c", "50%\nmore") == "::error title=a%3A b%2C c::50%25%0Amore"


def test_markdown_cells_cannot_break_the_table(cli, runs):
    """Every table row has as many bars as its head, whatever the values hold."""
    text = cli("compare", *runs, "--format", "markdown").stdout
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    for table in tables:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
        assert len(counts) == 1
    assert len(tables) == 3


def test_output_is_not_overwritten_without_force(cli, runs, tmp_path):
    """-o refuses an existing file; --force replaces it as a whole."""
    path = tmp_path / "report.xml"
    assert cli("compare", *runs, "--format", "junit", "-o", path) == 1
    assert cli("compare", *runs, "--format", "junit", "-o", path) == 2
    assert cli("compare", *runs, "--format", "junit", "-o", path, "--force") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--threshold", "0"],
        ["--format", "html"],
        ["--by", "algorithm"],
        ["--allow-mixed", "kernel"],
        ["--fail-on", "x"],
    ],
)
def test_wrong_use_is_two(cli, runs, words):
    """Unknown values and contradictions are exit 2 in one line."""
    shown = cli("compare", *runs, *words)
    assert shown == 2
    assert len(shown.stderr.strip().splitlines()) == 1


def test_a_run_without_variants_says_so(cli, runs):
    """--by variant needs a run of 'collbench ab'."""
    shown = cli("compare", runs[0], "--by", "variant")
    assert shown == 3
    assert "collbench ab" in shown.stderr


def test_variants_of_two_libraries_are_compared(cli, write_run, lines):
    """ab --b-mpi: the defaults of both libraries are one cell, their difference stands beside it."""
    out = []
    for number in range(16):
        variant, name = (("A", "openmpi"), ("B", "mpich"))[number % 2]
        library = {"name": name, "version": "5.0.1", "string": name}
        out.append(lines.launch(number, 2, variant=variant, repetition=number // 2, library=library))
        time_us = (10.0 if variant == "A" else 8.0) * (1 + number / 1000)
        out.append(lines.cell(number, "bcast", 2, 8, "default", [time_us], provider=name))
    path = write_run(out, "ab", ab={"pairs": 8, "variants": ["A", "B"], "self_test": False})
    found = json.loads(cli("compare", path, "--by", "variant", "--json").stdout)
    assert [(c["verdict"], c["paired"], c["launches"]) for c in found["cells"]] == [("faster", True, 8)]
    assert {"field": "library.name", "base": "openmpi", "new": "mpich"} in found["differences"]


def test_variants_that_ran_another_algorithm_than_asked_are_refused_unless_told(cli, write_run, lines):
    """Asked for a ring, B ran something else: exit 2 with both; --allow-mixed effective compares and says it."""
    out = []
    for number in range(16):
        variant, ran, status = (("A", "ring", "proven"), ("B", "linear", "contradicted"))[number % 2]
        out.append(lines.launch(number, 2, variant=variant, repetition=number // 2))
        evidence = Evidence(status, "operator_trace", ran)
        out.append(lines.cell(number, "bcast", 2, 8, "ring", [10.0 + number / 1000], evidence=evidence))
    path = write_run(out, "ab", ab={"pairs": 8, "variants": ["A", "B"]})
    shown = cli("compare", path, "--by", "variant")
    assert shown == 2
    assert "asked to run ring but linear ran" in shown.stderr
    shown = cli("compare", path, "--by", "variant", "--allow-mixed", "effective")
    assert shown == 0
    assert "note: bcast 2 ranks 8 B as ring: A ran ring, B ran linear" in shown.stdout


def test_cell_names_say_what_is_unusual():
    """Several nodes, parameters and other forms are part of a cell's name."""
    usual = (
        "allreduce",
        8,
        4,
        65536,
        "float32",
        "sum",
        False,
        "host",
        1,
        "openmpi",
        "ring",
        None,
        '{"a": 1}',
    )
    assert cell_id(usual, CASE_COLUMNS) == "allreduce/8x4/65536/ring[a=1]"
    other = ("allreduce", 8, 8, 64, "int32", "max", True, "cuda", 1, "portable", "ring", None, "{}")
    assert cell_id(other, CASE_COLUMNS) == (
        "allreduce/8/64/portable:ring/dtype=int32/op=max/in_place=True/memory=cuda"
    )


NOTHING = {"named": (), "a_env": (), "b_env": (), "b_mpi": None, "b_setup": None, "b_table": None}


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"b_env": ("X=1",)}, ["A", "B"]),
        ({"b_setup": "module load x"}, ["A", "B"]),
        ({"named": ("base:", "one:X=1", "two:X=2,Y=a")}, ["base", "one", "two"]),
    ],
)
def test_variants_of_the_command_line(given, names):
    """A and B, or any number of named ones; the base comes first."""
    assert [v.name for v in make_variants(NOTHING | given, self_test=False)] == names


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"b_env": ("X=1",), "named": ("a:", "b:")},
        {"named": ("a:",)},
        {"named": ("a:", "a:X=1")},
        {"b_env": ("X",)},
    ],
)
def test_contradicting_variants_are_refused(given):
    """Nothing to compare, two ways at once, one variant, the same name twice, no assignment."""
    with pytest.raises(UsageError):
        make_variants(NOTHING | given, self_test=False)


def test_a_comma_inside_a_value_is_kept():
    """OMPI_MCA_btl=self,sm is one value."""
    found = variant.parse_variant("x:OMPI_MCA_btl=self,sm,Y=2")
    assert found.env == {"OMPI_MCA_btl": "self,sm", "Y": "2"}


def test_a_set_up_line_is_an_argument_of_the_shell():
    """Nothing is interpolated: the line and the command are separate arguments."""
    line = "module load 'x'; echo $HOME"
    found = variant.with_setup(line, ["mpiexec", "-n", "2", "a b"])
    assert found[-5:] == (line, "mpiexec", "-n", "2", "a b")
    assert line not in found[3]


def test_a_set_up_line_changes_the_environment(monkeypatch):
    """What the line exports is seen, whatever it prints; a failing line is one sentence."""
    assert variant.environment_after("export COLLBENCH_T='a b'; echo noise")["COLLBENCH_T"] == "a b"
    with pytest.raises(UnansweredError, match="set-up line 'false' fails"):
        variant.environment_after("false")
