"""The table of collbench's own plugin, from a selection."""

from collbench.backends.plugin import grammar
from collbench.records import Rule, Selection
from collbench.tables import nccl_plugin, render

RULES = (
    Rule("allreduce", 8, 8, 0, 65535, "nccl", "tree", None, (("protocol", "ll"),)),
    Rule("allreduce", 8, 8, 65536, 1048575, "nccl", "default"),
    Rule("allreduce", 8, 8, 1048576, None, "nccl", "ring", None, (("channels", 16), ("protocol", "simple"))),
    Rule("allreduce", 16, 8, 0, None, "nccl", "nvls_tree", None, (("protocol", "simple"),), ranks_max=31),
    Rule("allreduce", 32, 8, 0, None, "portable", "hierarchical_sharded"),
    Rule("allgather", 8, 8, 0, None, "nccl", "symmetric"),
    Rule("alltoall", 8, 8, 0, None, "nccl", "default"),
)


def test_the_text_is_what_the_plugin_reads(golden):
    """Defaults have no rule, what a plugin cannot do is left out with the reason, versions are named."""
    text = render(Selection(RULES, "nccl", {"library": "nccl", "library_version": "2.32.3"}), "nccl-tuner")
    golden("nccl_plugin_table.txt", text)
    table = grammar.parse(text)
    assert table.measured == {"nccl": "2.32.3"}
    assert len(table.rules) == 3


def test_sizes_ranks_and_nodes_decide_as_the_selection_does():
    """At the borders, between rules, and on a cluster of another shape."""
    table = grammar.parse(nccl_plugin.render(Selection(RULES, "nccl")))
    assert grammar.find(table, "allreduce", 65535, 8, 1).algorithm == "tree"
    assert grammar.find(table, "allreduce", 65536, 8, 1) is None
    assert grammar.find(table, "allreduce", 2**40, 8, 1).channels == 16
    assert grammar.find(table, "allreduce", 8, 8, 2) is None
    assert grammar.find(table, "allreduce", 8, 24, 3).algorithm == "nvls_tree"
    assert grammar.find(table, "allreduce", 8, 32, 4) is None


def test_the_activation_names_the_plugin_and_the_table():
    """Both variables that NCCL and the plugin read."""
    found = nccl_plugin.FORMAT.activation("/t.txt", Selection((), "nccl"))
    assert found["COLLBENCH_NCCL_TABLE"] == "/t.txt"
    assert found["NCCL_TUNER_PLUGIN"].endswith("libnccl-tuner-collbench.so")
