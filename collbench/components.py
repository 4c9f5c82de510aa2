"""Which component of Open MPI serves a collective, read from the library's own selection log. Pure text, no MPI.

With ``OMPI_MCA_coll_base_verbose`` at LEVEL the library names, for each new communicator, the components it enables, in
rising order: each takes over the collectives that it offers, so the last one that offers a collective serves it.
Source of what a component offers: ``comm_query`` of each component in 4.1 and 5.0; what differs between versions, or is
settled at run time (hcoll, ucc, xhc), is not told. Unknown stays None.
"""

import re
from dataclasses import dataclass

from collbench.collectives import COLLECTIVES

VARIABLE, LEVEL = "OMPI_MCA_coll_base_verbose", "9"
"""From level 10 on the log also names every component that was looked at."""

_NEW = re.compile(r"coll:base:comm_select: new communicator: (?P<name>.*) \(cid (?P<cid>.+)\)")
_SELECT = re.compile(
    r"coll:base:comm_select: selecting +(?P<name>\S+), priority +-?\d+, (?P<state>Enabled|Disabled)"
)
_NOISE = re.compile(r"^\[[^\]]*\] (?:coll:|\(\S+/.*\): no underlying )")

_BLOCKING = frozenset(COLLECTIVES) - {"sendrecv"}
_HAN = frozenset({"allgather", "allreduce", "barrier", "bcast", "gather", "reduce", "scatter"})
_SM = frozenset({"allreduce", "barrier", "bcast", "reduce"})
_OFFERS = {
    "basic": _BLOCKING,
    "tuned": _BLOCKING,
    "self": _BLOCKING,
    "han": _HAN,
    "adapt": frozenset({"bcast", "reduce"}),
    "libnbc": frozenset[str](),
    "ftagree": frozenset[str](),
}
"""Component → blocking collectives that it certainly offers on a communicator of one's own making."""
_MAY_OFFER = {"han": frozenset({"alltoall", "alltoallv"}), "sm": _SM}
"""Component → collectives that some versions of it offer."""
_WRAPPERS = frozenset({"monitoring", "sync", "cuda", "accelerator"})
"""Components that count, synchronise or stage buffers of accelerators, and pass host buffers on to the one below."""


@dataclass(frozen=True, slots=True)
class Selected:
    """What was enabled for one communicator.

    Attributes:
        name: of the communicator.
        components: in rising order.
    """

    name: str
    components: tuple[str, ...]

    def serving(self, collective: str) -> str | None:
        """Return the component that serves a collective; None where the log does not settle it."""
        for component in reversed(self.components):
            if component in _WRAPPERS:
                continue
            if collective in _OFFERS.get(component, frozenset()):
                return component
            may = component not in _OFFERS and component not in _MAY_OFFER
            if may or collective in _MAY_OFFER.get(component, frozenset()):
                return None
        return None


def selections(text: str) -> list[Selected]:
    """Return what the log says of communicator after communicator, in the order in which they were made.

    Where several processes wrote it, the first one's word is taken: all ranks select alike.
    """
    found: list[Selected] = []
    process: str | None = None
    for line in text.splitlines():
        new, select = _NEW.search(line), _SELECT.search(line)
        if not (new or select) or line.partition("]")[0] != (process := process or line.partition("]")[0]):
            continue
        if new:
            found.append(Selected(new["name"], ()))
        elif select and found and select["state"] == "Enabled":
            last = found.pop()
            found.append(Selected(last.name, (*last.components, select["name"])))
    return found


def is_log(line: str) -> bool:
    """Say whether the selection log wrote this line."""
    return bool(_NOISE.match(line))
