"""How processes are started: one file a launcher. A launcher turns a LaunchSpec into the exact command."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from collbench.environment import usable_cores
from collbench.errors import UnansweredError, UsageError
from collbench.installation import Installation
from collbench.launchers.allocation import Allocation, allocation
from collbench.registry import Registry

__all__ = ["KINDS", "Allocation", "Command", "LaunchSpec", "Launcher", "allocation", "choose", "inside_job"]


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What is to be started.

    Attributes:
        ranks: number of processes.
        program: the program and its arguments.
        env: planned variables; every rank must see exactly these values.
        hosts: names of the nodes; empty = what the launcher finds by itself.
        ranks_per_node: processes on each node; None = what the launcher gives.
    """

    ranks: int
    program: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    ranks_per_node: int | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """The exact command of a launch.

    Attributes:
        argv: program and arguments, never a shell string.
        env: variables to add to the environment of the launcher process itself.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Launcher:
    """Base of all launchers; a subclass says how its command is written.

    Attributes:
        installation: the MPI that is launched.
        extra_args: arguments of the user, put before the program.
        hosts: nodes used where a LaunchSpec names none.
        ranks_per_node: used where a LaunchSpec names none.
        slots: processes that fit without sharing a core, over all nodes.
        root: whether the user is root (Open MPI then needs to be told that this is meant).
        template: the user's command line, for the template launcher only.
        slurm_mpi: the user's own choice of Slurm's MPI plugin; None = none.
    """

    installation: Installation
    extra_args: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ranks_per_node: int | None = None
    slots: int = 1
    root: bool = False
    template: str = ""
    slurm_mpi: str | None = None

    name = "launcher"

    def command(self, spec: LaunchSpec) -> Command:
        """Return the exact command that starts ``spec``.

        Raises:
            UsageError: the ranks do not fit on the hosts with that many ranks per node.
        """
        raise NotImplementedError

    @property
    def mpiexec(self) -> str:
        """The path of mpiexec; raises UnansweredError where the installation has none."""
        if self.installation.mpiexec is None:
            raise UnansweredError(
                f"no mpiexec belongs to {self.installation.version_string}: "
                "install its launcher, or name one with --launcher 'srun -n {ranks}'"
            )
        return str(self.installation.mpiexec)

    def placed(self, spec: LaunchSpec) -> tuple[tuple[str, ...], int | None]:
        """Return the hosts and the ranks per node that hold for ``spec``, checked against its ranks."""
        hosts = spec.hosts or self.hosts
        per_node = spec.ranks_per_node or self.ranks_per_node
        if hosts and per_node and len(hosts) * per_node < spec.ranks:
            raise UsageError(
                f"{spec.ranks} ranks do not fit on {len(hosts)} hosts with {per_node} ranks per node: "
                "name more hosts or raise the ranks per node"
            )
        if hosts and not per_node:
            per_node = -(-spec.ranks // len(hosts))
        if hosts and per_node:
            hosts = hosts[: -(-spec.ranks // per_node)]
        return hosts, per_node

    def oversubscribed(self, spec: LaunchSpec) -> bool:
        """Say whether ``spec`` has more ranks than slots (a core then serves several ranks)."""
        return spec.ranks > self.slots


KINDS = Registry(
    "launcher",
    {
        "openmpi": "collbench.launchers.openmpi:OpenMpi",
        "hydra": "collbench.launchers.hydra:Hydra",
        "intel": "collbench.launchers.hydra:Intel",
        "srun": "collbench.launchers.srun:Srun",
        "template": "collbench.launchers.template:Template",
    },
)
"""Flavour → launcher class."""


def choose(
    installation: Installation,
    *,
    template: str | None = None,
    extra_args: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    ranks_per_node: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Launcher:
    """Return the launcher for an installation.

    The user's ``template`` comes first (a launcher's name such as ``srun``, or a command line with ``{ranks}``); then
    the mpiexec that belongs to the library; then srun inside a Slurm allocation.

    Args:
        installation: what ``installation.discover`` found.
        template: ``srun``, ``mpiexec`` or a command line such as ``flux run -n {ranks}``; None = choose.
        extra_args: arguments of the user for the launcher.
        hosts: nodes to use; empty = the allocation's.
        ranks_per_node: processes on each node; None = what the launcher gives.
        environ: the environment to read an allocation from; None = this process's.

    Raises:
        UsageError: an unknown launcher name or a template without ``{ranks}``.
        UnansweredError: nothing here can start the library's processes.
    """
    env = os.environ if environ is None else environ
    flavour, line = _flavour(installation, template)
    here = allocation(env, usable_cores(physical=True))
    launcher = KINDS[flavour](
        installation=installation,
        extra_args=extra_args,
        hosts=hosts,
        ranks_per_node=ranks_per_node,
        slots=_slots(here, hosts),
        root=os.geteuid() == 0,
        template=line,
        slurm_mpi=env.get("SLURM_MPI_TYPE"),
    )
    assert isinstance(launcher, Launcher)
    return launcher


def _slots(here: Allocation, hosts: tuple[str, ...]) -> int:
    """Return the slots of the hosts in use; one that the allocation does not list is taken to be like this machine."""
    if not hosts:
        return here.slots
    known = dict(zip(here.hosts, here.per_host, strict=False))
    return sum(known.get(host, usable_cores(physical=True)) for host in hosts)


def _flavour(installation: Installation, template: str | None) -> tuple[str, str]:
    """Return the registry name of the launcher and, for a template, its text."""
    own = installation.flavour
    if template is None or template.strip() == "mpiexec":
        if own in KINDS and own != "template":
            return own, ""
        raise UnansweredError(
            f"do not know how {installation.mpiexec or installation.version_string} starts processes: "
            "say it with --launcher, for example --launcher 'flux run -n {ranks}'"
        )
    if template.strip() == "srun":
        return "srun", ""
    if len(template.split()) > 1 or "{" in template:
        return "template", template
    raise UsageError(
        f"{template!r} is not a launcher: write mpiexec, srun, or a command such as 'flux run -n {{ranks}}'"
    )


_SIZES = (
    "OMPI_COMM_WORLD_SIZE",  # Open MPI's mpirun and prterun
    "MV2_COMM_WORLD_SIZE",  # MVAPICH's mpirun_rsh
    "PMI_SIZE",  # hydra, Intel MPI, srun --mpi=pmi2, PALS
    "FLUX_JOB_SIZE",  # flux run
    "JSM_NAMESPACE_SIZE",  # IBM jsrun
)


def inside_job(environ: Mapping[str, str]) -> int | None:
    """Return the ranks of the MPI job this process is one rank of; None when it was started by hand.

    A Slurm step of one task is an interactive shell (``srun --pty``, ``salloc``), not a job of one rank.
    """
    for name in _SIZES:
        if environ.get(name, "").isdigit():
            return int(environ[name])
    tasks = environ.get("SLURM_STEP_NUM_TASKS", "")
    if tasks.isdigit() and int(tasks) > 1 and environ.get("SLURM_PROCID", "").isdigit():
        return int(tasks)
    return None
