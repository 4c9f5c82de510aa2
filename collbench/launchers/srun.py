"""Slurm's srun, inside an allocation.

Source: srun's manual page (Slurm 22.05 to 24.11).
"""

from collbench.launchers import Command, Launcher, LaunchSpec

# Library → Slurm's plugin whose wire protocol it speaks; others (Cray …) use the site's default.
_PLUGIN = {"openmpi": "pmix", "mpich": "pmi2", "intelmpi": "pmi2"}


class Srun(Launcher):
    """srun: ``--export`` forwards; a value with a comma travels in srun's own environment, which ALL exports."""

    name = "srun"

    def command(self, spec: LaunchSpec) -> Command:
        """Return ``srun -n N … --export=ALL,K=V,… program``."""
        hosts, per_node = self.placed(spec)
        argv = ["srun", f"--ntasks={spec.ranks}", "--kill-on-bad-exit=1", *self._plugin()]
        if per_node:
            argv += [f"--nodes={-(-spec.ranks // per_node)}", f"--ntasks-per-node={per_node}"]
        if hosts:
            argv.append(f"--nodelist={','.join(hosts)}")
        if self.oversubscribed(spec):
            argv.append("--overcommit")
        argv += self.extra_args
        apart = {name: value for name, value in spec.env.items() if "," in value or "'" in value}
        plain = [f"{name}={value}" for name, value in sorted(spec.env.items()) if name not in apart]
        argv.append("--export=" + ",".join(["ALL", *plain]))
        return Command((*argv, *spec.program), apart)

    def _plugin(self) -> list[str]:
        asked = self.slurm_mpi is not None or any(arg.startswith("--mpi") for arg in self.extra_args)
        plugin = _PLUGIN.get(self.installation.library)
        return [] if asked or plugin is None else [f"--mpi={plugin}"]
