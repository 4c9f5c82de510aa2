"""Launchers: exact commands (golden), allocations of batch systems, jobs that already run."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from collbench import launchers
from collbench.errors import UnansweredError, UsageError
from collbench.installation import Installation
from collbench.launchers import KINDS, LaunchSpec, allocation, choose, inside_job
from collbench.launchers.allocation import expand_hosts

PYTHON = Path("/venv/bin/python")
PROGRAM = ("/venv/bin/python", "-m", "collbench.worker", "--plan", "/tmp/plan 0.json")
ENV = {
    "PYTHONSAFEPATH": "1",
    "NCCL_ALGO": "Ring,Tree",
    "OMPI_MCA_coll": "^han",
    "EMPTY": "",
    "QUOTED": 'a "b" $C',
}
HERE = {"openmpi": ("openmpi", (5, 0, 11)), "openmpi4": ("openmpi", (4, 1, 4)), "hydra": ("mpich", (5, 0, 2)),
        "intel": ("intelmpi", (2021, 18, 1)), "srun": ("openmpi", (5, 0, 11)), "template": ("mpich", (5, 0, 2))}  # fmt: skip


def _installation(kind: str) -> Installation:
    library, version = HERE[kind]
    flavour = kind.removesuffix("4")
    mpiexec = None if flavour == "srun" else Path("/venv/bin/mpiexec")
    return Installation(PYTHON, mpiexec, flavour, library, version, f"{library} {version}")


def _launcher(kind: str, **settings):
    flavour = kind.removesuffix("4")
    template = "flux run -N {nodes} -n {ranks} --requires=host:{hosts}" if flavour == "template" else ""
    return KINDS[flavour](_installation(kind), template=template, **settings)


def _shown(command: launchers.Command) -> str:
    return "".join(f"{k}={shlex.quote(v)} \\\n" for k, v in sorted(command.env.items())) + " ".join(
        shlex.quote(word) for word in command.argv
    )


SPECS = {
    "four ranks on four slots": (LaunchSpec(4, PROGRAM, ENV), {"slots": 4}),
    "eight ranks on four slots as root": (LaunchSpec(8, PROGRAM, {"A": "1"}), {"slots": 4, "root": True}),
    "two hosts, four ranks each, own arguments": (
        LaunchSpec(8, PROGRAM, {"A": "1"}, ("n1", "n2"), 4), {"slots": 8, "extra_args": ("--verbose", "x y")}),
    "two hosts": (LaunchSpec(6, PROGRAM, {}, ("n1", "n2")), {"slots": 8}),
    "four ranks per node on a small node": (LaunchSpec(4, PROGRAM, {}, (), 4), {"slots": 2}),
    "four ranks per node": (LaunchSpec(8, PROGRAM, {}, (), 4), {"slots": 8}),
}  # fmt: skip


@pytest.mark.parametrize("kind", HERE)
def test_the_exact_commands(kind, golden):
    """Every launcher writes exactly the commands of its golden file."""
    parts = []
    for title, (spec, settings) in SPECS.items():
        try:
            shown = _shown(_launcher(kind, **settings).command(spec))
        except UsageError as error:
            shown = f"UsageError: {error}"
        parts.append(f"# {title}\n{shown}\n")
    golden(f"launch_{kind}.txt", "\n".join(parts))


@pytest.mark.parametrize("kind", HERE)
def test_every_planned_variable_is_forwarded_by_name(kind):
    """No planned variable relies on being inherited; a comma is the one thing srun's option cannot carry."""
    command = _launcher(kind, slots=4).command(LaunchSpec(4, PROGRAM, ENV, ("n1", "n2"), 2))
    words = [
        piece
        for word in command.argv
        for piece in ([word] if "srun" not in command.argv[0] else word.split(","))
    ]
    for name, value in ENV.items():
        pair = f"{name}={value}" in words
        genv = any(words[i : i + 3] == ["-genv", name, value] for i in range(len(words)))
        assert pair or genv or command.env.get(name) == value, name


@pytest.mark.parametrize("kind", HERE)
def test_ranks_that_do_not_fit_on_the_hosts_are_wrong_use(kind):
    """The sentence has the three numbers."""
    with pytest.raises(UsageError, match="9 ranks do not fit on 2 hosts with 4 ranks per node"):
        _launcher(kind).command(LaunchSpec(9, PROGRAM, {}, ("n1", "n2"), 4))


def test_only_the_hosts_that_are_needed_are_used():
    """Four ranks at two per node leave the third host alone."""
    argv = _launcher("openmpi").command(LaunchSpec(4, PROGRAM, {}, ("a", "b", "c"), 2)).argv
    assert "a:2,b:2" in argv


def test_sharing_cores_is_allowed_only_where_it_must_be():
    """Allowing it always would change Open MPI's binding, and with it the user's default."""
    launcher = _launcher("openmpi", slots=4)
    assert dict(launcher.command(LaunchSpec(4, PROGRAM)).env) == {}
    assert (
        launcher.command(LaunchSpec(5, PROGRAM)).env["PRTE_MCA_rmaps_default_mapping_policy"]
        == ":oversubscribe"
    )


@pytest.mark.parametrize(
    ("given", "asked"),
    [({"slurm_mpi": "pmix_v4"}, None), ({"extra_args": ("--mpi=cray_shasta",)}, "cray_shasta")],
)
def test_the_users_choice_of_slurms_mpi_plugin_stands(given, asked):
    """SLURM_MPI_TYPE and --launcher-args --mpi=… are not overruled."""
    argv = _launcher("srun", **given).command(LaunchSpec(2, PROGRAM)).argv
    assert [f"--mpi={asked}"] * (asked is not None) == [word for word in argv if word.startswith("--mpi=")]


def test_a_template_may_say_where_the_program_goes():
    """{program} stands for the program with its variables."""
    launcher = replace(_launcher("template"), template="wrap -n {ranks} {program} --end")
    assert launcher.command(LaunchSpec(3, ("p", "q"), {"A": "1"})).argv == (
        "wrap", "-n", "3", "env", "A=1", "p", "q", "--end",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("flux run -n 4", "does not say where the number of ranks goes"),
        ("flux run -n {ranks} {rank}", "unknown launcher field 'rank'"),
        ("flux run -n {ranks} -N {nodes}", r"uses \{nodes\}, which this run does not set"),
        ("flux run -n {ranks} 'a", "cannot be read"),
        ("flux run -n {ranks} {", "cannot be read"),
    ],
)
def test_a_broken_template_is_wrong_use(template, words):
    """What is wrong with it is said in one sentence."""
    with pytest.raises(UsageError, match=words):
        replace(_launcher("template"), template=template).command(LaunchSpec(4, PROGRAM))


@pytest.mark.parametrize(("kind", "name"), [("openmpi", "mpiexec (Open MPI)"), ("hydra", "mpiexec (hydra)"),
                                            ("intel", "mpiexec (Intel MPI)"), ("srun", "srun")])  # fmt: skip
def test_the_installation_decides_the_launcher(kind, name):
    """Without a wish the library's own launcher is used, srun where none is there in an allocation."""
    assert name == choose(_installation(kind), environ={}).name


def test_a_wish_for_a_launcher_comes_first():
    """--launcher srun, mpiexec or a command line."""
    here = _installation("openmpi")
    assert choose(here, template="srun", environ={}).name == "srun"
    assert choose(here, template="mpiexec", environ={}).name == "mpiexec (Open MPI)"
    assert choose(here, template="flux run -n {ranks}", environ={}).name == "template"
    with pytest.raises(UsageError, match="'sbatch' is not a launcher"):
        choose(here, template="sbatch", environ={})


def test_a_library_without_launcher_says_what_to_do():
    """Outside of an allocation nothing can be guessed."""
    with pytest.raises(UnansweredError, match="--launcher"):
        choose(replace(_installation("openmpi"), mpiexec=None, flavour="other"), environ={})


def test_the_allocation_gives_the_slots():
    """Inside a batch job its slots decide whether cores are shared."""
    environ = {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "16(x2)"}
    assert choose(_installation("openmpi"), environ=environ).slots == 32
    assert choose(_installation("openmpi"), environ=environ, hosts=("n1",), ranks_per_node=4).slots == 16


@pytest.mark.parametrize(
    ("environ", "ranks"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_SIZE": "64"}, 64),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, 1),
        ({"PMI_SIZE": "8", "PMI_RANK": "3"}, 8),
        ({"FLUX_JOB_SIZE": "16"}, 16),
        ({"SLURM_STEP_NUM_TASKS": "32", "SLURM_PROCID": "0"}, 32),
        ({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"SLURM_NTASKS": "32", "SLURM_JOB_ID": "7"}, None),
        ({"PMI_SIZE": "many"}, None),
    ],
)
def test_a_running_job_is_recognised(environ, ranks):
    """Inside mpirun or a step of several tasks; a batch script and an interactive shell are none."""
    assert ranks == inside_job(environ)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],gpu7", ["n08", "n09", "n10", "n12", "gpu7"]),
        ("r[1-2]c[0-1]-ib", ["r1c0-ib", "r1c1-ib", "r2c0-ib", "r2c1-ib"]),
        ("a,b,c", ["a", "b", "c"]),
    ],
)
def test_slurms_host_lists_are_expanded(text, hosts):
    """Ranges keep their leading zeros; several brackets multiply."""
    assert hosts == expand_hosts(text)


@pytest.mark.parametrize("text", ["n[1-x]", "n[1-2", "", ","])
def test_a_broken_host_list_is_named(text):
    """Never a traceback, never an empty list."""
    with pytest.raises(UnansweredError, match="SLURM_JOB_NODELIST"):
        expand_hosts(text)


def test_allocations_of_each_batch_system(tmp_path):
    """Slurm, PBS, LSF and SGE all say hosts and slots in their own way; without them it is this machine."""
    nodes, table = tmp_path / "nodes", tmp_path / "pe"
    nodes.write_text("n1\nn1\nn2\nn2\nn2\n")
    table.write_text("n1 8 q UNDEFINED\nn2 4 q UNDEFINED\n")
    found = [
        allocation(environ, 6)
        for environ in (
            {},
            {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "8(x2),4"},
            {"SLURM_JOB_NODELIST": "n[1-3]"},
            {"PBS_NODEFILE": str(nodes)},
            {"LSB_MCPU_HOSTS": "n1 16 n2 16"},
            {"PE_HOSTFILE": str(table)},
        )
    ]
    assert [a.per_host for a in found] == [(6,), (8, 8, 4), (6, 6, 6), (2, 3), (16, 16), (8, 4)]
    assert [a.slots for a in found] == [6, 20, 18, 5, 32, 12]
    assert [a.system for a in found] == [None, "slurm", "slurm", "pbs", "lsf", "sge"]
    assert found[1].hosts == ("n1", "n2", "n3")
    assert found[0].hosts == ()


def test_an_unreadable_host_file_is_named(tmp_path):
    """The file and the reason are in the sentence."""
    with pytest.raises(UnansweredError, match="cannot read the batch system's host file"):
        allocation({"PBS_NODEFILE": str(tmp_path / "gone")}, 1)


def test_hosts_with_more_ranks_than_slots_keep_their_ranks_each():
    """Open MPI 5 with the permission to share cores alone puts all ranks on the first host; 4.1 fills by slots."""
    spec = LaunchSpec(8, PROGRAM, {}, ("n1", "n2"), 4)
    words = " ".join(_launcher("openmpi", slots=4).command(spec).argv)
    assert "--host n1:4,n2:4 --map-by ppr:4:node:OVERSUBSCRIBE " in words
    assert "--map-by" not in _launcher("openmpi", slots=8).command(spec).argv
    assert "--map-by" not in _launcher("openmpi4", slots=4).command(spec).argv
