"""mpiexec of Open MPI 4 and 5.

Source: runs of 4.1.4 and 5.0.11; PRRTE's and ORTE's help texts.
"""

from collbench.launchers import Command, Launcher, LaunchSpec

_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class OpenMpi(Launcher):
    """Open MPI's mpiexec: ``-x`` forwards, ``--host h:slots`` places, oversubscription must be allowed."""

    name = "mpiexec (Open MPI)"

    def command(self, spec: LaunchSpec) -> Command:
        """Return ``mpiexec -n N --host … -x K=V … program``."""
        hosts, per_node = self.placed(spec)
        argv = [self.mpiexec, "-n", str(spec.ranks)]
        if hosts:
            argv += ["--host", ",".join(f"{host}:{per_node}" for host in hosts)]
        crowded = self.oversubscribed(spec) and self._major > 4
        if per_node and (not hosts or (crowded and len(hosts) > 1)):
            # Named here, the mapping replaces the variable's, and with it the permission to share cores. By the
            # variable alone, version 5 would put all ranks on the first of several hosts.
            shared = ":OVERSUBSCRIBE" if crowded else ""
            argv += ["--map-by", f"ppr:{per_node}:node{shared}"]
        argv += self.extra_args
        for name, value in sorted(spec.env.items()):
            argv += ["-x", f"{name}={value}"]
        return Command((*argv, *spec.program), self._own_env(spec))

    def _own_env(self, spec: LaunchSpec) -> dict[str, str]:
        """Return the launcher's own variables; sharing cores is allowed only where it has to be.

        Allowing it always would change how Open MPI binds ranks to cores, and with it the user's default.
        """
        env = dict(_ROOT) if self.root else {}
        if self.oversubscribed(spec):
            if self._major == 4:
                env["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
            else:
                env["PRTE_MCA_rmaps_default_mapping_policy"] = ":oversubscribe"
        return env

    @property
    def _major(self) -> int:
        version = self.installation.version
        return version[0] if version else 5
