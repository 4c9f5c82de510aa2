"""What the command line asks of a run, and the profile as it changes it."""

from dataclasses import dataclass, replace

from collbench.profile import Profile


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line says about a run; None = as the profile has it.

    Attributes:
        collectives: only these.
        ranks: these rank counts.
        sizes: these total bytes.
        algorithms: these names or words.
        iterations: fixed number of calls per case.
        budget_s: time for the whole run.
        launches: process starts per rank count.
        seed: of every shuffle.
        label: free text kept in the run line.
        launcher: template of a launcher, ``flux run -n {ranks}``.
        launcher_args: further words for the launcher.
        hosts: host names.
        ranks_per_node: ranks on each host.
        mpi: an mpiexec, a prefix or a virtual environment.
        thread_level: single, funneled, serialized or multiple.
        sync: barrier, dissemination or window.
        rotate_buffers: pairs of buffers that calls go through in turn.
        rotate_root: let the root of rooted collectives go round (False = as the profile has it).
        refine: race only where neighbouring sizes disagree; None = as the profile has it, never where ``sizes`` are named.
        confirm: where a rank count has one launch, measure default and winners in a second one.
        repeat: start disturbed launches again in the time that is left.
        nccl_tests_dir: folder of the nccl-tests binaries.
        virtual_nodes: treat the ranks as this many nodes.
        prove: prove the effective algorithm in an untimed launch.
        redact: replace host names, users and paths in the run file.
        timeout_s: least time before a silent case counts as hung.
    """

    collectives: tuple[str, ...] | None = None
    ranks: tuple[int, ...] | None = None
    sizes: tuple[int, ...] | None = None
    algorithms: tuple[str, ...] | None = None
    iterations: int | None = None
    budget_s: float | None = None
    launches: int | None = None
    seed: int = 0
    label: str | None = None
    launcher: str | None = None
    launcher_args: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    ranks_per_node: int | None = None
    mpi: str | None = None
    thread_level: str = "single"
    sync: str = "barrier"
    rotate_buffers: int | None = None
    rotate_root: bool = False
    refine: bool | None = None
    confirm: bool = False
    repeat: bool = True
    nccl_tests_dir: str | None = None
    virtual_nodes: int | None = None
    prove: bool = True
    redact: bool = False
    timeout_s: float = 60.0


def with_options(profile: Profile, options: RunOptions) -> Profile:
    """Return the profile as the command line changes it.

    Raises:
        UsageError: an option leaves nothing to measure.
    """
    sweeps = []
    for sweep in profile.sweeps:
        names = sweep.collectives
        if options.collectives is not None:
            names = tuple(n for n in names if n in options.collectives)
        sweeps.append(
            replace(
                sweep,
                collectives=names,
                ranks=options.ranks or sweep.ranks,
                sizes=options.sizes or sweep.sizes,
                algorithms=options.algorithms or sweep.algorithms,
            )
        )
    sweeps = [s for s in sweeps if s.collectives]
    missing = [n for n in options.collectives or () if not any(n in s.collectives for s in sweeps)]
    if missing:
        # Asked for by name but absent from the profile: measure it as the profile measures the first one.
        sweeps.append(replace(profile.sweeps[0], collectives=tuple(missing), ranks=options.ranks or profile.sweeps[0].ranks,
                              sizes=options.sizes or profile.sweeps[0].sizes,
                              algorithms=options.algorithms or profile.sweeps[0].algorithms))  # fmt: skip
    sampling = profile.sampling
    if options.iterations is not None:
        sampling = replace(sampling, mode="fixed", iterations=options.iterations)
    sampling = replace(
        sampling,
        rotate_buffers=options.rotate_buffers or sampling.rotate_buffers,
        rotate_root=options.rotate_root or sampling.rotate_root,
        refine=sampling.refine and not options.sizes if options.refine is None else options.refine,
    )
    return replace(
        profile,
        sweeps=tuple(sweeps),
        sampling=sampling,
        launches=options.launches or profile.launches,
        budget_s=_budget(profile, options),
        ranks_per_node=options.ranks_per_node or profile.ranks_per_node,
    )


def _budget(profile: Profile, options: RunOptions) -> float | None:
    """Return the time for all launches: the profile's is for as many launches as it names."""
    if options.budget_s is not None or profile.budget_s is None:
        return options.budget_s
    return profile.budget_s * (options.launches or profile.launches) / profile.launches
