"""Evidence: asked for, shown, how far proven; neighbouring sizes with the same finding are one row."""

from collbench import results
from collbench.reports.evidence import evidence_table, proofs
from collbench.reports.samples import Filter
from collbench.reports.screen import console, emit


def test_findings_are_ranges_of_sizes(example):
    """The same finding at neighbouring sizes is one row; another finding starts a new one."""
    found = proofs(results.read(example), Filter(("allreduce",), (2,)))
    assert [(p.requested, p.effective, p.status, p.min_bytes, p.max_bytes) for p in found] == [
        ("default", "default", "proven", 8, 65536),
        ("recursive_doubling", "recursive_doubling", "proven", 8, 8),
        ("recursive_doubling", None, "unknown", 65536, 65536),
        ("ring", "recursive_doubling", "contradicted", 8, 8),
        ("ring", "ring or segmented_ring", "not_separable", 65536, 65536),
    ]
    assert {p.library for p in found} == {"openmpi 5.0.11"}


def test_a_proof_line_speaks_where_no_cell_was_measured(write_run, lines):
    """Findings of a proof launch stand alone where the case itself was not timed."""
    cell = lines.cell(0, "bcast", 2, 8, "chain", [1.0])
    line = {**{k: cell[k] for k in ("launch", "case", "effective", "evidence")}, "kind": "proof"}
    (found,) = proofs(results.read(write_run([lines.launch(0, 2), line])), Filter())
    assert (found.requested, found.effective, found.by) == ("chain", "chain", "operator_trace")


def test_the_table(example, golden, capsys):
    """One table per collective and cluster size; sets that a proof cannot tell apart are footnotes."""
    emit(console(width=80), evidence_table(proofs(results.read(example), Filter())))
    golden("show_evidence.txt", capsys.readouterr().out)


def test_a_run_without_evidence_says_so(write_run, capsys):
    """No rows is a sentence, not an empty screen."""
    emit(console(width=80), evidence_table(proofs(results.read(write_run([])), Filter())))
    assert "no evidence in this run" in capsys.readouterr().out
