"""mpiexec of MPICH (hydra) and of Intel MPI.

Source: runs of MPICH 5.0.2 and Intel MPI 2021.18.1; both programs' help texts.
"""

from collbench.launchers import Command, Launcher, LaunchSpec


class Hydra(Launcher):
    """MPICH's mpiexec: ``-genv`` forwards, ``-hosts`` and ``-ppn`` place; sharing cores needs no permission."""

    name = "mpiexec (hydra)"

    def command(self, spec: LaunchSpec) -> Command:
        """Return ``mpiexec -n N -hosts … -ppn R -genv K V … program``."""
        hosts, per_node = self.placed(spec)
        argv = [self.mpiexec, "-n", str(spec.ranks)]
        if hosts:
            argv += ["-hosts", ",".join(hosts)]
        if per_node:
            argv += ["-ppn", str(per_node)]
        argv += self.extra_args
        for name, value in sorted(spec.env.items()):
            argv += ["-genv", name, value]
        return Command((*argv, *spec.program), self._own_env(spec))

    def _own_env(self, spec: LaunchSpec) -> dict[str, str]:  # noqa: ARG002 - subclasses look at the spec
        return {}


class Intel(Hydra):
    """Intel MPI's mpiexec: hydra's options; inside a batch job ``-ppn`` counts only when it is told so."""

    name = "mpiexec (Intel MPI)"

    def _own_env(self, spec: LaunchSpec) -> dict[str, str]:
        """Return the variable that makes ``-ppn`` hold inside a batch job (Intel MPI Developer Reference)."""
        _, per_node = self.placed(spec)
        return {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "0"} if per_node else {}
