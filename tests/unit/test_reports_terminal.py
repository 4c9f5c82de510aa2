"""Tables and maps on the terminal: readable at 80 columns, without colour, in any metric."""

import pytest
from rich.console import Console

from collbench import results
from collbench.reports import screen, terminal
from collbench.reports.panels import panels
from collbench.reports.samples import samples


def panels_of(path):
    return panels(samples(results.read(path)).usable)


def text_of(capsys, width, *things):
    screen.emit(screen.console(width=width), *things)
    return capsys.readouterr().out


@pytest.mark.parametrize("metric", list(terminal.METRICS))
def test_tables_in_each_metric(example, golden, capsys, metric):
    """Sizes × algorithms with marks; a barrier has no bandwidth, so its time is shown."""
    things = [terminal.panel_table(panel, metric, 80) for panel in panels_of(example)]
    golden(f"show_table_{metric}.txt", text_of(capsys, 80, *things))


def test_the_map_of_winners(example, golden, capsys):
    """Size × ranks, each cell a short word and what the default costs; a legend names the short words."""
    golden("show_map.txt", text_of(capsys, 80, *terminal.winner_maps(panels_of(example), 80)))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_many_algorithms_fit_any_width(write_run, lines, capsys, width):
    """Columns that do not fit are put below, none is lost and no line is too long."""
    words = ["default", "basic_linear", "chain", "pipeline", "split_binary_tree", "binary_tree", "binomial", "knomial",
             "scatter_allgather", "scatter_allgather_ring", "pipeline[segment_bytes=65536]"]  # fmt: skip
    made = [lines.launch(0, 8)]
    for i, word in enumerate(words):
        name, _, value = word.partition("[segment_bytes=")
        params = (("segment_bytes", int(value.rstrip("]"))),) if value else ()
        made += [lines.cell(0, "bcast", 8, n, name, [1e4 + i + n / 1e3], params=params) for n in (8, 1 << 20)]
    (panel,) = panels_of(write_run(made))
    shown = text_of(capsys, width, terminal.panel_table(panel, "time", width))
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count("1 MiB") == {40: 3, 80: 2, 120: 1}[width]
    assert (
        sum(line.split()[1:].count("10000*") + len(line.split()[2:]) > 0 for line in shown.splitlines()) > 0
    )
    assert sum(len(line.split()) - 2 for line in shown.splitlines() if line.startswith("1 MiB")) == len(words)


def test_a_single_algorithm_shows_all_three_metrics(write_run, lines, golden, capsys):
    """As nccl-tests prints it: size, time, algbw, busbw; nothing is marked fastest."""
    case = {
        "collective": "allreduce",
        "ranks": 8,
        "nbytes": 1 << 20,
        "provider": "nccl",
        "algorithm": "default",
    }
    path = write_run([{"kind": "cell", "launch": 0, "case": case, "time_s": 1e-4}], source="nccl-tests")
    golden("show_single.txt", text_of(capsys, 80, terminal.panel_table(panels_of(path)[0], "time", 80)))


def test_several_launches_state_their_spread(write_run, lines):
    """Two launches say how far apart they are; from six on their range is an interval of the median."""
    for count, words in ((1, "1 launch (no interval)"), (2, "launches apart ±"), (6, "95 % interval ±")):
        made = []
        for number in range(count):
            made += [
                lines.launch(number, 2),
                lines.cell(number, "bcast", 2, 8, "default", [1.0 + number / 100]),
            ]
        (panel,) = panels_of(write_run(made, name=f"launches{count}"))
        assert words in terminal.caption(panel)


def test_what_is_not_ordinary_stands_in_the_title(write_run, lines):
    """Node shape, variant and the like are said; the ordinary case is not."""
    path = write_run(
        [lines.launch(0, 8, variant="A"), lines.cell(0, "bcast", 8, 8, "default", [1.0], ranks_per_node=4)]
    )
    assert terminal.describe(panels_of(path)[0]) == "bcast on 8 ranks, 4 a node, variant A"


def test_names_are_never_read_as_markup(write_run, lines, capsys):
    """An imported algorithm called [bold] is shown as it is called."""
    made = [
        lines.launch(0, 2),
        *(lines.cell(0, "bcast", 2, 8, name, [1.0]) for name in ("[red]x", "default")),
    ]
    (panel,) = panels_of(write_run(made))
    assert "[red]x" in text_of(capsys, 80, terminal.panel_table(panel, "time", 80))


def test_colour_repeats_what_marks_say(example):
    """With a colour terminal the marks stay, so that colour-blind readers and logs lose nothing."""
    panel = panels_of(example)[0]
    colour = Console(force_terminal=True, color_system="standard", width=80, no_color=False)
    with colour.capture() as capture:
        colour.print(terminal.panel_table(panel, "time", 80))
    assert "\x1b[1;32m20.2*" in capture.get()
