"""Tables and winner maps on the terminal. Colour repeats what marks and words already say."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from collbench.decision import MARGIN
from collbench.reports.panels import Entry, Panel
from collbench.reports.words import head_lines, short_words
from collbench.units import format_bytes, format_gbs, format_percent, format_us

METRICS = {"time": "time in µs", "algbw": "algbw in GB/s", "busbw": "busbw in GB/s"}
"""What a table can show → how its title says it."""

FASTEST, TIED = "*", "="
_PALETTE = (
    "cyan", "green", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_green", "bright_yellow",
    "bright_magenta", "bright_blue", "bright_red",
)  # fmt: skip
_SYNC = {
    "barrier": "after a barrier", "dissemination": "after collbench's own barrier", "window": "started by clock",
    "none": "calls back to back",
}  # fmt: skip
_REDUCTION = {
    "max": "slowest rank",
    "avg": "average over ranks",
    "min": "fastest rank",
    "rank0": "rank 0's time",
}


def panel_table(panel: Panel, metric: str, width: int) -> Group:
    """Return one panel as a table of sizes × algorithms, split into parts that fit ``width`` columns."""
    if len(panel.labels) == 1:
        return _single(panel)
    known = any(_value(entry, metric) is not None for entry in panel.entries.values())
    shown = metric if known else "time"
    title = Text(f"{describe(panel)}: {METRICS[shown]}", style="bold")
    parts: list[RenderableType] = [title]
    parts += [_part(panel, labels, shown) for labels in _fitting(panel, shown, width)]
    return Group(*parts, _caption(panel))


def _single(panel: Panel) -> Group:
    """Return a panel of one algorithm: its time and both bandwidths side by side, as nccl-tests prints them."""
    label = panel.labels[0]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for head in ("size", "time µs", "algbw GB/s", "busbw GB/s"):
        table.add_column(head, justify="right", no_wrap=True)
    for nbytes in panel.sizes:
        entry = panel.entries[nbytes, label]
        rates = (format_gbs(_value(entry, metric)) for metric in ("algbw", "busbw"))
        table.add_row(_size(nbytes), format_us(entry.time_s), *rates)
    return Group(Text(f"{describe(panel)}: {label}", style="bold"), table, _caption(panel))


def _caption(panel: Panel) -> Padding:
    return Padding(Text(caption(panel), style="dim"), (0, 0, 0, 2))


def describe(panel: Panel) -> str:
    """Return ``allreduce on 4 ranks`` and whatever is not the ordinary case (node shape, dtype, in place …)."""
    key = panel.key
    words = [f"{key.collective} on {key.ranks} ranks"]
    if key.ranks_per_node is not None and key.ranks_per_node < key.ranks:
        words.append(f"{key.ranks_per_node} a node")
    words += [text for text in (
        key.dtype if key.dtype != "float32" else "",
        key.op if key.op not in (None, "sum") else "",
        "in place" if key.in_place else "",
        key.memory if key.memory != "host" else "",
        f"{key.groups} groups at once" if key.groups > 1 else "",
        f"variant {key.variant}" if key.variant is not None else "",
    ) if text]  # fmt: skip
    return ", ".join([*words, *panel.apart])


def caption(panel: Panel) -> str:
    """Return what stands behind a panel's times: launches, blocks, spread or interval, method."""
    entries = list(panel.entries.values())
    most = max(entry.launches for entry in entries)
    least = min(entry.launches for entry in entries)
    words = [_count(least, most, "launch", "launches")]
    blocks = [entry.blocks for entry in entries if entry.blocks]
    words.append(
        f"{_count(min(blocks), max(blocks), 'block', 'blocks')} a cell" if blocks else "no blocks kept"
    )
    if most > 1:
        words.append(_spread(entries))
    else:
        words[0] += " (no interval)"
    words.append(
        _REDUCTION.get(panel.key.rank_reduction or "", panel.key.rank_reduction or "rank reduction unknown")
    )
    words.append(_SYNC.get(panel.key.sync or "", panel.key.sync or "synchronisation unknown"))
    if panel.left_out:
        words.append(
            f"{len(panel.left_out)} launch(es) in another machine state left out (these: {panel.state or 'unknown'})"
        )
    return " · ".join(words)


def _count(low: int, high: int, one: str, many: str) -> str:
    return f"{high} {one if high == 1 else many}" if low == high else f"{low}–{high} {many}"


def _spread(entries: Sequence[Entry]) -> str:
    """Say how far launch medians lie apart; of six or more, their range is a 96.9 % interval of the median.

    Source: order statistics, P(min < median < max) = 1 − 2^(1−n).
    """
    spreads = sorted(
        (e.high_s - e.low_s) / 2 / e.time_s for e in entries if e.low_s is not None and e.high_s is not None
    )
    if not spreads:
        return "no interval"
    what = "95 % interval" if min(e.launches for e in entries) >= 6 else "launches apart"
    middle, worst = spreads[len(spreads) // 2], spreads[-1]
    return f"{what} ±{format_percent(middle)} (worst ±{format_percent(worst)})"


def _value(entry: Entry, metric: str) -> float | None:
    value: float | None = getattr(entry, _FIELDS[metric])
    return value


_FIELDS = {"time": "time_s", "algbw": "algbw", "busbw": "busbw"}


def _cell(panel: Panel, nbytes: int, label: str, metric: str) -> Text:
    entry = panel.entries.get((nbytes, label))
    if entry is None:
        return Text("· ", style="dim")
    value = _value(entry, metric)
    text = format_us(value) if metric == "time" else format_gbs(value)
    if entry.fastest:
        return Text(text + FASTEST, style="bold green")
    return Text(text + TIED, style="green") if entry.tied else Text(text + " ")


def _fitting(panel: Panel, metric: str, width: int) -> list[list[str]]:
    """Split the columns into as few parts of about equal length as fit the width."""
    first = max(len(_size(n)) for n in panel.sizes)
    widths = {
        label: max(
            *(len(line) for line in head_lines(label)),
            *(len(_cell(panel, n, label, metric).plain) for n in panel.sizes),
        )
        for label in panel.labels
    }
    for parts in range(1, len(panel.labels) + 1):
        step = -(-len(panel.labels) // parts)
        split = [list(panel.labels[i : i + step]) for i in range(0, len(panel.labels), step)]
        if all(first + sum(widths[label] + 1 for label in labels) <= width for labels in split):
            return split
    return [[label] for label in panel.labels]


def _part(panel: Panel, labels: Sequence[str], metric: str) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    table.add_column(Text("size"), justify="right", vertical="bottom", no_wrap=True)
    for label in labels:
        table.add_column(Text("\n".join(head_lines(label))), justify="right", vertical="bottom", no_wrap=True)
    for nbytes in panel.sizes:
        table.add_row(_size(nbytes), *(_cell(panel, nbytes, label, metric) for label in labels))
    return table


def _size(nbytes: int) -> str:
    return format_bytes(nbytes) if nbytes else "–"


def winner_maps(panels: Sequence[Panel], width: int) -> list[Group]:
    """Return one size × ranks map of winners for each collective with a choice, in colour and in words."""
    groups: dict[tuple[object, ...], list[Panel]] = {}
    for panel in panels:
        if len(panel.labels) == 1:
            continue
        key = panel.key
        kind = (
            key.collective,
            key.dtype,
            key.op,
            key.in_place,
            key.memory,
            key.groups,
            key.variant,
            *panel.apart,
        )
        groups.setdefault(kind, []).append(panel)
    colours = _colours(panels)
    return [_map(group, colours, width) for group in groups.values()]


def _colours(panels: Sequence[Panel]) -> dict[str, str]:
    """Give each algorithm that wins anywhere its colour; the default stays plain."""
    winners = dict.fromkeys(panel.winner(n) for panel in panels for n in panel.sizes)
    named = [label for label in winners if label and not label.startswith("default")]
    return {label: _PALETTE[i % len(_PALETTE)] for i, label in enumerate(named)}


def _map(panels: Sequence[Panel], colours: dict[str, str], width: int) -> Group:
    labels = dict.fromkeys(label for panel in panels for label in panel.labels)
    words = short_words(labels)
    sizes = sorted({n for panel in panels for n in panel.sizes})
    parts: list[RenderableType] = [Text(f"{_family(panels)}: fastest by size and ranks", style="bold")]
    columns = [_map_column(panel, sizes, words, colours) for panel in panels]
    first = max(len(_size(n)) for n in sizes)
    for chunk in _chunks([max(len(text) for text in column) for column in columns], width - first):
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
        table.add_column(justify="right", no_wrap=True)
        for _ in chunk:
            table.add_column(no_wrap=True)
        for i, head in enumerate(["size", *map(_size, sizes)]):
            table.add_row(Text(head, style="bold" if i == 0 else ""), *(columns[c][i] for c in chunk))
        parts.append(table)
    used = {panel.winner(n) for panel in panels for n in panel.sizes}
    legend = [f"{words[label]} = {label}" for label in labels if label in used and words[label] != label]
    if legend:
        parts.append(Text("  " + ", ".join(legend), style="dim"))
    return Group(*parts)


def _family(panels: Sequence[Panel]) -> str:
    """Return the panels' common description, without ranks and node shape."""
    words = describe(panels[0]).split(", ")
    return ", ".join([panels[0].key.collective, *(w for w in words[1:] if not w.endswith(" a node"))])


def _map_column(
    panel: Panel, sizes: Sequence[int], words: dict[str, str], colours: dict[str, str]
) -> list[Text]:
    key = panel.key
    shape = (
        f"{key.ranks}"
        if key.ranks_per_node in (None, key.ranks)
        else f"{key.ranks} ({key.ranks_per_node} a node)"
    )
    column = [Text(f"{shape} ranks", style="bold")]
    for nbytes in sizes:
        label = panel.winner(nbytes)
        gain = panel.gain(nbytes)
        if label is None:
            column.append(Text("·", style="dim"))
            continue
        times = "" if label.startswith("default") or gain is None else f" {gain + 1:.2f}×"
        column.append(Text(words[label] + times, style=colours.get(label, "")))
    return column


def _chunks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Split column numbers into runs whose widths (and gaps) fit the room."""
    chunks: list[list[int]] = [[]]
    used = 0
    for number, width in enumerate(widths):
        if chunks[-1] and used + width + 2 > room:
            chunks.append([])
            used = 0
        chunks[-1].append(number)
        used += width + 2
    return chunks


LEGEND = (
    f"{FASTEST} fastest of its row, {TIED} cannot be told from it. Maps: the default where it is tied or within "
    f"{MARGIN * 100:g} % of the fastest, else the fastest and how many times as long the default takes. "
    "algbw = S/t, busbw = algbw × factor."
)
"""One explanation of the marks, printed once."""
