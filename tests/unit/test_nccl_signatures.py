"""Every call into nccl4py and CUDA's bindings fits the signatures of the installed packages; needs no GPU."""

import ast
import inspect
from importlib.util import find_spec
from pathlib import Path

import pytest

from collbench.backends import nccl_plan, nccl_presence

pytestmark = pytest.mark.skipif(find_spec("nccl") is None, reason="nccl4py is not installed")

SOURCE = Path(nccl_plan.__file__).with_name("nccl_bind.py")
MODULES = ("core", "bindings", "runtime")


def _objects():
    """Word in the source → the class whose methods are called through it."""
    from cuda.core import Device, Stream
    from cuda.core.graph import Graph, GraphBuilder
    from nccl.core import Communicator

    return {"comm": Communicator, "device": Device, "stream": Stream, "builder": GraphBuilder, "graph": Graph}


def _base(node):
    """``self.device.create_event`` → device; ``core.Communicator.init`` → core.Communicator."""
    value = node.value
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        return value.attr if value.value.id == "self" else f"{value.value.id}.{value.attr}"
    return None


def _calls():
    """Yield (line, target, number of positional arguments, names of the others) of every foreign call."""
    from collbench.backends import nccl_bind

    objects = _objects()
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if not isinstance(node, ast.Call):
            continue
        names = [k.arg for k in node.keywords]
        if isinstance(node.func, ast.Name) and node.func.id in ("Device", "EventOptions"):
            yield node.lineno, getattr(nccl_bind, node.func.id), len(node.args), names
        if not isinstance(node.func, ast.Attribute):
            continue
        base, name = _base(node.func), node.func.attr
        if base in objects:
            yield node.lineno, getattr(objects[base], name), len(node.args) + 1, names
        elif base and base.split(".")[0] in MODULES:
            owner = nccl_bind
            for word in base.split("."):
                owner = getattr(owner, word)
            yield node.lineno, getattr(owner, name), len(node.args), names


def test_every_call_binds_to_the_installed_signature():
    """As many positional arguments, and these keywords, are what each function takes."""
    from cuda.core import Device, EventOptions

    checked = 0
    for line, target, count, names in _calls():
        if target is Device or target is EventOptions or inspect.isclass(target):
            assert all(hasattr(target, n) for n in names), f"line {line}: {target}"
            continue
        try:
            signature = inspect.signature(target)
        except ValueError:
            # An enumeration or a compiled function without a recorded signature: at least it exists.
            assert callable(target), f"line {line}"
            continue
        signature.bind(*range(count), **dict.fromkeys(names))
        checked += 1
    assert checked >= 25


def test_arguments_stand_in_the_order_of_the_installed_binding():
    """The low-level binding takes pointers and counts by position: the names at each place are as expected."""
    from nccl.bindings import nccl as bindings

    reduction = ["sendbuff", "recvbuff", "count", "datatype", "op", "comm", "stream"]
    expected = {
        "all_reduce": reduction,
        "reduce": [*reduction[:5], "root", *reduction[5:]],
        "broadcast": ["sendbuff", "recvbuff", "count", "datatype", "root", "comm", "stream"],
        "all_gather": ["sendbuff", "recvbuff", "sendcount", "datatype", "comm", "stream"],
        "reduce_scatter": ["sendbuff", "recvbuff", "recvcount", "datatype", "op", "comm", "stream"],
        "allto_all": ["sendbuff", "recvbuff", "count", "datatype", "comm", "stream"],
        "send": ["sendbuff", "count", "datatype", "peer", "comm", "stream"],
        "recv": ["recvbuff", "count", "datatype", "peer", "comm", "stream"],
        "all_reduce_config": [*reduction, "config"],
    }
    for name, names in expected.items():
        assert list(inspect.signature(getattr(bindings, name)).parameters) == names


def test_attributes_and_configuration_fields_exist():
    """What is set on a per-call configuration can be set, and is kept; communicators have what is read from them."""
    from cuda.core import Buffer, Stream
    from cuda.core.graph import GraphBuilder
    from nccl.bindings import nccl as bindings
    from nccl.core import Communicator, NCCLConfig

    config = bindings.CollConfig()
    config.alg_selection = "symk"
    config.force_alg_selection = 1
    assert (config.alg_selection, config.force_alg_selection) == ("symk", 1)
    assert config.ptr
    fields = NCCLConfig(min_ctas=4, max_ctas=4)
    assert (fields.min_ctas, fields.max_ctas) == (4, 4)
    for owner, name in ((Communicator, "ptr"), (Communicator, "rank"), (Communicator, "nranks"), (Buffer, "handle"),
                        (Stream, "handle"), (GraphBuilder, "stream")):  # fmt: skip
        assert hasattr(owner, name)


def test_every_element_type_and_operator_has_nccls_number():
    """The sizes that nccl4py knows are ours."""
    from collbench.backends import nccl_bind
    from collbench.profile import OPS
    from collbench.records import ITEMSIZE

    assert {name: dtype.itemsize for name, dtype in nccl_bind.DTYPES.items()} == ITEMSIZE
    assert set(nccl_bind.OPS) == set(OPS)


@pytest.mark.skipif(bool(nccl_presence.gpus()), reason="this machine has a GPU")
def test_without_a_gpu_a_rank_ends_with_a_sentence():
    """Creating the rank's GPU fails as an error of the bindings, never as a crash."""
    from collbench.backends import nccl_bind

    with pytest.raises(Exception, match=r"(?i)cuda|driver|libcuda"):
        nccl_bind.Gpu(0)


@pytest.mark.skipif(find_spec("pynvml") is None, reason="nvidia-ml-py is not installed")
def test_everything_that_doctor_asks_the_driver_exists():
    """Functions, constants and structures of nvidia-ml-py."""
    import pynvml

    tree = ast.parse(SOURCE.with_name("gpu.py").read_text())
    asked = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
             and n.value.id == "nvml"}  # fmt: skip
    assert len(asked) > 20
    assert not [name for name in asked if not hasattr(pynvml, name)]
