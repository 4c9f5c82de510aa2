"""Nodes from sizes and virtual nodes, groups with leaders, pairs for point-to-point, trees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.errors import UsageError
from collbench.portable import sendrecv
from collbench.portable.doubletree import in_order_tree, two_trees
from collbench.portable.patterns import tree_depths
from collbench.portable.schedule import NONE, ShapeError
from collbench.portable.topology import node_groups, node_of, numbered, shape


def test_blocks_of_ranks_are_nodes():
    assert node_of(5) == (0,) * 5
    assert node_of(8, node_sizes=[5, 3]) == (0, 0, 0, 0, 0, 1, 1, 1)
    assert node_of(7, virtual_nodes=4) == (0, 0, 1, 1, 2, 2, 3)
    assert node_of(2, virtual_nodes=4) == (0, 1)


def test_uneven_nodes_are_a_list():
    topology = shape(node_of(8, node_sizes=[5, 3]))
    assert (topology.nodes, topology.ranks_per_node, topology.node_sizes) == (2, 5, (5, 3))


@pytest.mark.parametrize(
    "wrong",
    [
        {"node_sizes": [3, 3]},
        {"node_sizes": [8, 0]},
        {"virtual_nodes": 0},
        {"node_sizes": [8], "virtual_nodes": 1},
    ],
)
def test_impossible_nodes_are_refused(wrong):
    with pytest.raises(UsageError):
        node_of(8, **wrong)


def test_labels_are_numbered_by_first_appearance():
    assert numbered([7, 7, 3, 9, 3]).tolist() == [0, 0, 1, 2, 1]


def test_the_root_leads_its_node_and_that_comes_first():
    groups = node_groups((0, 1, 0, 1, 2), root=3)
    assert groups.members.tolist() == [3, 1, 0, 2, 4]
    assert groups.leaders.tolist() == [3, 0, 4]
    assert groups.size.tolist() == [2, 2, 1]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_groups_hold_every_rank_once(labels, data):
    root = data.draw(st.integers(0, len(labels) - 1))
    groups = node_groups(labels, root)
    assert sorted(groups.members.tolist()) == list(range(len(labels)))
    assert groups.members[0] == root
    for begin, size in zip(groups.begin, groups.size, strict=True):
        assert len({labels[r] for r in groups.members[begin : begin + size]}) == 1


def test_pairs_follow_the_topology():
    """The intra-node pair shares a node, the inter-node pair does not; auto takes the widest level."""
    nodes = (0, 1, 0, 1)
    assert [int(x[0]) for x in sendrecv.pairs(nodes, "intra_node")] == [0, 2]
    assert [int(x[0]) for x in sendrecv.pairs(nodes, "inter_node")] == [0, 1]
    assert [int(x[0]) for x in sendrecv.pairs(nodes, "auto")] == [0, 1]
    assert [x.tolist() for x in sendrecv.pairs(nodes, "inter_node", everyone=True)] == [[0, 2], [1, 3]]


def test_a_missing_level_is_refused_with_the_reason():
    with pytest.raises(ShapeError, match="more than one node"):
        sendrecv.pairs((0, 0), "inter_node")
    with pytest.raises(ShapeError, match="two ranks on one node"):
        sendrecv.pairs((0, 1), "intra_node")
    with pytest.raises(ShapeError, match="choose from auto, intra_node, inter_node"):
        sendrecv.pairs((0, 1), "far")


def test_large_messages_shorten_the_window():
    assert sendrecv.window(8, {}) == 64
    assert sendrecv.window(16 << 20, {}) == 4
    assert sendrecv.window(1 << 30, {"window": 64}) == 1
    assert sendrecv.messages("pingpong", 8, {}) == 2
    assert sendrecv.messages("bandwidth", 8, {"window": 16}) == 16


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 33, 64, 100])
def test_double_trees_are_trees_and_balanced(size):
    """Each has one root, at most two children a vertex and logarithmic depth; inner in one means leaf in the other."""
    inner = np.zeros(size, int)
    for parent in two_trees(size):
        assert (parent == NONE).sum() == 1
        children = np.bincount(parent[parent != NONE], minlength=size)
        assert children.max(initial=0) <= 2
        assert tree_depths(parent).max() <= np.ceil(np.log2(size + 1))
        inner += children > 0
    assert (inner == 2).sum() <= 1
    assert in_order_tree(size)[0::2].size == (size + 1) // 2
