"""Guidelines: a collective that costs more than a composition is found, with the size of the loss and what to do."""

import json

import numpy as np
import pytest

from collbench import guidelines, results

METHOD = {
    "rank_reduction": "max", "sync": "barrier", "rotation": "none", "timer": "c", "thread_level": "single",
    "library": "openmpi", "library_version": "5.0.11", "source": "collbench", "memory": "host", "groups": 1,
}  # fmt: skip


def row(collective, time_us, launch=0, **facts):
    """One row of a frame; nine blocks scattered by ``noise`` (a share) around the time."""
    noise = facts.pop("noise", 0.01)
    blocks = [time_us * 1e-6 * (1 + noise * x) for x in np.linspace(-1, 1, 9)]
    reducing = collective in ("allreduce", "reduce", "reduce_scatter")
    return {
        **dict.fromkeys(results.COLUMNS), **METHOD, "run": "r", "launch": launch, "collective": collective, "ranks": 8,
        "ranks_per_node": 8, "nbytes": 65536, "dtype": "float32", "op": "sum" if reducing else None,
        "in_place": False, "provider": "openmpi", "algorithm": "default", "params": "{}",
        "time_s": time_us * 1e-6, "blocks_s": blocks, **facts,
    }  # fmt: skip


def check(*rows, **options):
    import pandas as pd

    return guidelines.check(pd.DataFrame.from_records(list(rows), columns=list(results.COLUMNS)), **options)


@pytest.mark.parametrize(("collective", "parts"), guidelines.COMPOSITIONS)
def test_each_composition_is_checked(collective, parts):
    """A collective at 130 µs that could be had for 100 µs is a loss of 30 %; at 90 µs it is none."""
    cheap = [row(part, 100 / len(parts)) for part in parts]
    (found,) = [
        v
        for v in check(row(collective, 130), *cheap)
        if v.rule == "composition" and v.collective == collective
    ]
    assert found.loss == pytest.approx(0.30)
    assert found.loss_low < found.loss < found.loss_high
    assert found.composition == parts
    assert found.instead == " + ".join(parts)
    assert not [v for v in check(row(collective, 90), *cheap) if v.collective == collective]


def test_a_loss_inside_the_margin_or_the_noise_is_no_violation():
    parts = [row("reduce", 50), row("bcast", 50)]
    assert check(row("allreduce", 104), *parts) == []
    assert len(check(row("allreduce", 104), *parts, margin=0.01)) == 1
    assert (
        check(row("allreduce", 130, noise=0.9), *[row("reduce", 50, noise=0.9), row("bcast", 50, noise=0.9)])
        == []
    )


def test_without_an_interval_nothing_is_claimed():
    """An imported row has no blocks: one launch of it gives no interval, so no violation."""
    rows = [row("allreduce", 300), row("reduce", 50), row("bcast", 50)]
    assert check(*[{**r, "blocks_s": []} for r in rows]) == []


def test_three_launches_make_the_interval_and_are_paired():
    """All launches twice as slow on the second day: the paired ratio does not move."""
    rows = []
    for launch, factor in enumerate((1, 2, 1.5)):
        rows += [
            row("allreduce", 130 * factor, launch),
            row("reduce", 60 * factor, launch),
            row("bcast", 40 * factor, launch),
        ]
    (found,) = check(*[{**r, "blocks_s": []} for r in rows])
    assert found.launches == 3
    assert (found.loss, found.loss_low, found.loss_high) == pytest.approx((0.3, 0.3, 0.3))


def test_a_time_that_falls_when_the_size_grows_is_found():
    """The cliff of Alps: 1 MiB takes 921 µs, 2 MiB only 129 µs."""
    (found,) = check(row("allreduce", 921, nbytes=1 << 20), row("allreduce", 129, nbytes=2 << 20))
    assert (found.rule, found.nbytes, found.instead) == ("size", 1 << 20, "2 MiB instead of 1 MiB")
    assert found.loss == pytest.approx(921 / 129 - 1)


def test_a_cliff_off_a_power_of_two_is_found_across_launches():
    """127 ranks slower than 128 is a violation, the other way round is not."""
    slow, fast = (
        row("allgather", 300, 0, ranks=127, ranks_per_node=4),
        row("allgather", 100, 1, ranks=128, ranks_per_node=4),
    )
    (found,) = check(slow, fast)
    assert (found.rule, found.ranks, found.instead) == ("ranks", 127, "128 ranks instead of 127")
    assert check({**slow, "time_s": 9e-5}, fast) == []


def test_a_better_portable_algorithm_is_named():
    own = row("allreduce", 60, provider="portable", algorithm="ring")
    other = row("allreduce", 80, provider="portable", algorithm="flat")
    (found,) = check(row("allreduce", 120), own, other)
    assert (found.rule, found.composition, found.loss) == ("portable", ("portable:ring",), pytest.approx(1.0))


def test_rows_taken_by_another_method_are_not_mixed():
    assert (
        check(row("allreduce", 300), row("reduce", 50, sync="window"), row("bcast", 50, sync="window")) == []
    )


def test_forced_algorithms_are_not_judged():
    forced = {"algorithm": "basic_linear"}
    assert (
        check(row("allreduce", 300, **forced), row("reduce", 50, **forced), row("bcast", 50, **forced)) == []
    )


def test_the_sentence_and_the_json_say_the_same():
    (found,) = check(row("allreduce", 150), row("reduce", 60), row("bcast", 40))
    assert found.sentence == (
        "allreduce of 64 KiB on 8 ranks takes 150 µs, 50% more (95 % interval 49% … 51%) than reduce + bcast "
        "with 100 µs: call reduce + bcast instead, or choose another algorithm."
    )
    flat = json.loads(json.dumps(found.to_json()))
    assert flat["composition"] == ["reduce", "bcast"]
    assert flat["sentence"] == found.sentence
    assert guidelines.sentences([found]) == [found.sentence]


def test_the_best_chunk_and_what_one_piece_loses():
    import pandas as pd

    common = {"provider": "portable", "algorithm": "pipeline", "collective": "bcast", "nbytes": 1 << 20}
    rows = [
        row(time_us=t, params=json.dumps({"chunk_bytes": c}), **common)
        for c, t in ((0, 200), (8192, 150), (65536, 100), (524288, 160))
    ]
    (found,) = guidelines.best_chunks(pd.DataFrame.from_records(rows, columns=list(results.COLUMNS)))
    assert (found.rule, found.composition) == ("chunk", ("pipeline[chunk_bytes=65536]",))
    assert found.loss == pytest.approx(1.0)


def test_an_empty_frame_has_no_violations():
    assert check() == []
