"""What NCCL's own debug lines in a log tell: version, ranks, network, variables, and which algorithm ran."""

import re
from dataclasses import dataclass, field

from collbench.collectives import COLLECTIVES
from collbench.importers import hints
from collbench.records import Evidence

ALGORITHMS = {
    "tree": "tree", "ring": "ring", "collnetdirect": "collnet_direct", "collnet_direct": "collnet_direct",
    "collnetchain": "collnet_chain", "collnet_chain": "collnet_chain", "nvls": "nvls", "nvlstree": "nvls_tree",
    "nvls_tree": "nvls_tree", "pat": "pat", "collnet": "collnet",
}  # fmt: skip
"""NCCL's spellings, lower case → ours."""
PROTOCOLS = {"ll": "ll", "ll128": "ll128", "simple": "simple"}
# Older NCCL prints numbers. Source: NCCL_ALGO_* and NCCL_PROTO_* in nccl's device.h / nccl_common.h.
_BY_ID = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
_PROTO_BY_ID = ("ll", "ll128", "simple")

LOG = re.compile(r"(?<!\S)([^\s:]*):\d+:\d+ (?:\[\S*\] )?NCCL (?:INFO|WARN|TRACE|ABORT)\b ?")
_TUNING = re.compile(
    r"\b(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)(?: time \S+)?(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
)
_VERSION = re.compile(r"\b(NCCL|RCCL) version[ :]+(\d+\.\d+(?:\.\d+)?)")
_NRANKS = re.compile(r"\bn[rR]anks[ =](\d+)")
_NODES = re.compile(r"\bnNodes (\d+) localRanks (\d+)")
_SET_BY = re.compile(r"\b((?:NCCL|RCCL)_\w+) set (?:by environment )?to ['\"]?([^\s'\",]+)")
_CALL = re.compile(r"NCCL INFO (\w+): (?:opCount|\d+ Bytes)")
_FUNCTIONS = {
    "AllReduce": "allreduce", "AllGather": "allgather", "ReduceScatter": "reduce_scatter", "Broadcast": "bcast",
    "Reduce": "reduce", "AlltoAll": "alltoall", "SendRecv": "sendrecv",
}  # fmt: skip


@dataclass(slots=True)
class NcclLog:
    """Facts gathered from debug lines since the last table.

    Attributes:
        hosts: host names seen at the start of debug lines.
        version: library version; None when unknown.
        library: nccl or rccl when a version line says so.
        ranks: size of the largest communicator; None when unknown.
        nodes: its nodes.
        local_ranks: its ranks per node.
        sockets: NCCL said that it uses sockets between nodes.
        environment: variables that NCCL or a shell trace printed.
        functions: collectives called.
        tuning: (collective, bytes) → set of (algorithm, protocol, channels).
    """

    hosts: set[str] = field(default_factory=set)
    version: str | None = None
    library: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    local_ranks: int | None = None
    sockets: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    tuning: dict[tuple[str, int], set[tuple[str, str, int | None]]] = field(default_factory=dict)

    def next_table(self) -> None:
        """Forget what belongs to one table only."""
        self.tuning = {}
        self.functions = set()

    def take(self, line: str) -> None:
        """Read one debug line (or one that states a version)."""
        line = line[: hints.LINE]
        if " -> Algo " in line:
            self._tuning(line)
            return
        if "ersion" in line and (match := _VERSION.search(line)):
            self.library, self.version = match[1].lower(), match[2]
        if "anks" in line:
            self._ranks(line)
        if " set " in line and (match := _SET_BY.search(line)):
            self.environment.update(hints.keep_environment([(match[1], match[2])]))
        if "opCount" in line and (match := _CALL.search(line)) and match[1] in _FUNCTIONS:
            self.functions.add(_FUNCTIONS[match[1]])
        if "Using network Socket" in line:
            self.sockets = True
        elif "Using network" in line:
            self.sockets = False

    def _ranks(self, line: str) -> None:
        if (match := _NRANKS.search(line)) and int(match[1][:9]) <= hints.MAX_RANKS:
            self.ranks = max(self.ranks or 0, int(match[1][:9]))
        if (match := _NODES.search(line)) and int(match[1][:9]) > 0:
            self.nodes, self.local_ranks = int(match[1][:9]), int(match[2][:9])

    def _tuning(self, line: str) -> None:
        for name, size, algorithm, protocol, low, high in _TUNING.findall(line):
            if name not in _FUNCTIONS:
                continue
            channels = int(high[:6]) - int(low[:6]) + 1 if high else None
            ran = (_algorithm(algorithm), _protocol(protocol), channels)
            self.functions.add(_FUNCTIONS[name])
            self.tuning.setdefault((_FUNCTIONS[name], int(size[:18])), set()).add(ran)


def _algorithm(word: str) -> str:
    if word.isdecimal():
        return _BY_ID[int(word[:4])] if int(word[:4]) < len(_BY_ID) else word
    return ALGORITHMS.get(word.lower(), word.lower())


def _protocol(word: str) -> str:
    if word.isdecimal():
        return _PROTO_BY_ID[int(word[:4])] if int(word[:4]) < len(_PROTO_BY_ID) else word
    return PROTOCOLS.get(word.lower(), word.lower())


def requested(environment: dict[str, str], collective: str) -> tuple[str, tuple[tuple[str, int | str], ...]]:
    """Return (algorithm, params) that the recorded variables ask for; ``default`` where they name no single one.

    A list (``Ring,Tree``) or an exclusion (``^NVLS``) leaves the choice to NCCL: that is the default under a
    setting, which the launch line records. NCCL's own choice under a forced protocol is ``auto``, not the default.
    """
    algorithm = _single(environment.get("NCCL_ALGO", ""), collective)
    protocol = _single(environment.get("NCCL_PROTO", ""), collective)
    params: list[tuple[str, int | str]] = []
    if protocol in PROTOCOLS:
        params.append(("protocol", PROTOCOLS[protocol]))
    untouched = "auto" if params else "default"
    name = ALGORITHMS.get(algorithm, untouched if algorithm in ("", "auto", "default") else algorithm)
    return name, tuple(params)


def _single(value: str, collective: str) -> str:
    """Return the one name of ``Ring``, ``allreduce:tree;broadcast:ring``; empty where it is not one."""
    chosen = value.strip().lower()
    if ":" in chosen:
        parts = [p.partition(":") for p in chosen.split(";")]
        own = [v for name, sep, v in parts if sep and hints.name_in(name) == collective]
        chosen = own[0] if own else next((name for name, sep, _ in parts if not sep), "")
    return "" if any(c in chosen for c in ",;^") else chosen.strip()


def evidence(
    log: NcclLog, collective: str, nbytes: int, ranks: int, asked: str
) -> tuple[Evidence, dict[str, object]]:
    """Return what the tuning lines show for one size, and protocol and channels as extra fields.

    Some versions print the total size, some one rank's share, where the collective has shares.
    """
    ran = log.tuning.get((collective, nbytes))
    if ran is None and COLLECTIVES[collective].per_rank and nbytes % ranks == 0:
        ran = log.tuning.get((collective, nbytes // ranks))
    if not ran:
        return Evidence(), {}
    names = sorted({name for name, _, _ in ran})
    if len(names) > 1:
        text = "the log shows several algorithms for this size"
        return Evidence("not_separable", "tuning_log", None, tuple(names), text), {}
    fields: dict[str, object] = {}
    protocols = {p for _, p, _ in ran}
    channels = {c for _, _, c in ran if c is not None}
    if len(protocols) == 1:
        fields["protocol"] = next(iter(protocols))
    if len(channels) == 1:
        fields["channels"] = next(iter(channels))
    status = "proven" if asked in ("default", "auto", names[0]) else "contradicted"
    detail = " ".join(str(v) for v in (names[0], *fields.values()))
    return Evidence(status, "tuning_log", names[0], (), detail), {
        "effective_params": fields
    } if fields else {}
