"""The timed loop and the switch on real ranks."""

import pytest

pytestmark = pytest.mark.process


def test_each_scheme_stamps_every_iteration_on_every_rank(launch):
    """Barrier, window and back to back, in both loops; windows start together."""
    done = launch(
        2,
        """
        import numpy as np
        from collbench.mpi import calls, library, start, timed
        from collbench.records import Case, Cell

        MPI = start.start()
        world = MPI.COMM_WORLD
        case = Case(Cell("bcast", 2, 2, 64), library.identify(MPI).name, "default")
        call = calls.prepare(MPI, world, case, copies=2, rotate_root=True)
        timed.warm_up(call)
        for sync in ("dissemination", "barrier", "window", "none"):
            for timer in ("c", "mpi4py"):
                found = timed.block(call, 100, sync=sync, window_s=1e-4, timer=timer)
                start_ns, end_ns = found
                assert start_ns.shape == end_ns.shape == found.late.shape == (100,)
                assert (end_ns >= start_ns).all() and (start_ns[1:] >= end_ns[:-1]).all()
                if sync == "window":
                    assert (~np.any(world.allgather(found.late), axis=0)).any()
                else:
                    assert not found.late.any()
        everyone = world.gather((timed.timer_name(), timed.overhead_s(MPI) > 0))
        if world.rank == 0:
            print(everyone)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([("c", True)] * 2), done.stdout + done.stderr


def test_an_error_of_the_library_becomes_an_exception_on_every_rank(launch):
    """An invalid root is reported with the library's words by both loops; the ranks go on."""
    done = launch(
        2,
        """
        from collbench.mpi import calls, library, start, timed
        from collbench.records import Case, Cell

        MPI = start.start()
        world = MPI.COMM_WORLD
        case = Case(Cell("bcast", 2, 2, 64), library.identify(MPI).name, "default")
        call = calls.prepare(MPI, world.Dup(), case, root=99)
        caught = []
        for timer in ("c", "mpi4py"):
            try:
                timed.block(call, 3, timer=timer)
            except timed.MpiCallError as error:
                assert error.code != 0
                caught.append((timer, "root" in error.text.lower() or "arg" in error.text.lower()))
        everyone = world.gather(caught)
        if world.rank == 0:
            print(everyone)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([[("c", True), ("mpi4py", True)]] * 2), done.stdout


def test_thread_level_single_is_what_comes_up(launch):
    """mpi4py's own default, multiple, would cost 40–110 % on small messages."""
    for level in ("single", "multiple"):
        done = launch(1, f"from collbench.mpi import start; print(start.provided(start.start({level!r})))")
        assert done.stdout.split() == [level], done.stdout + done.stderr


def test_forcing_leaves_the_default_untouched(launch, mpi_library):
    """After a forced block the default's operator trace is the one from before, and variables read as before."""
    names = {
        "openmpi": ("ring", "coll_tuned_allreduce_algorithm"),
        "mpich": ("ring", "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"),
    }
    if mpi_library not in names:
        pytest.skip(f"{mpi_library} does not switch inside a process")
    name, variable = names[mpi_library]
    done = launch(
        4,
        f"""
        from collbench.mpi import cvars, library, proof, start, switch
        from collbench.records import Case, Cell

        MPI = start.start()
        world = MPI.COMM_WORLD
        lib = library.identify(MPI)
        chooser = switch.Switch(MPI, world, lib)
        variables = cvars.ControlVariables(MPI)
        cell = Cell("allreduce", 4, 4, 32768, "float64", "sum")
        plain, forced = Case(cell, lib.name, "default"), Case(cell, lib.name, "{name}")

        def trace(case):
            return proof.trace_operator(MPI, chooser.select(case), case)

        before, value = trace(plain), variables.read("{variable}")
        ring = trace(forced)
        assert ring == [[1024] * 3] * 4, ring
        assert trace(plain) == before != ring
        assert variables.read("{variable}") == value
        world.Barrier()
        if world.rank == 0:
            print("same")
        """,
        env={"OMPI_MCA_coll_tuned_use_dynamic_rules": "1"},
    )
    assert done.stdout.strip() == "same", done.stdout + done.stderr


def test_a_library_s_variables_refuse_what_they_cannot_hold(launch, mpi_library):
    """An unknown variable and a read-only one are errors with their name, never a silent success."""
    done = launch(
        1,
        """
        from collbench.mpi import cvars, start

        MPI = start.start()
        variables = cvars.ControlVariables(MPI)
        assert len(variables.names()) > 100
        assert not variables.exists("no_such_variable")
        try:
            variables.write("no_such_variable", 1)
        except cvars.ControlVariableError as error:
            print("refused", "no_such_variable" in str(error))
        """,
    )
    assert done.stdout.split() == ["refused", "True"], done.stdout + done.stderr


def test_clock_offsets_between_nodes_are_found_within_their_error(launch):
    """Ranks that claim to sit on different nodes, with clocks set apart by milliseconds on purpose."""
    done = launch(
        4,
        """
        import time
        from collbench.mpi import clock, start

        MPI = start.start()
        world = MPI.COMM_WORLD
        nodes = (0, 1, 1, 2)
        skew = (0, 5_000_000, 5_000_000, -3_000_000)[world.rank]
        found = clock.synchronise(world, nodes, rounds=50, clock_ns=lambda: time.monotonic_ns() + skew)
        alone = clock.synchronise(world, (0, 0, 0, 0))
        right = abs(found.offset_ns - skew) <= found.error_ns
        everyone = world.gather((right, (found.error_ns > 0) == (world.rank > 0), alone == clock.Clock(0, 0)))
        if world.rank == 0:
            print(everyone)
        """,
    )
    assert done.stdout.strip() == str([(True, True, True)] * 4), done.stdout + done.stderr
