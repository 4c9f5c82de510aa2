"""``collbench doctor``: is this machine fit to measure, and what mends it?"""

import json

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from collbench import doctor, trial
from collbench.cli import options
from collbench.errors import UnansweredError

_SIGNS = {
    trial.OK: ("ok", "green"),
    trial.WARNING: ("warning", "yellow"),
    trial.FAULT: ("FAULT", "bold red"),
    trial.SKIPPED: ("skipped", "dim"),
}
_WIDTH = 80


@click.command()
@click.option("--mpi", metavar="PATH", help="An mpiexec, a prefix or a virtual environment to look at.")
@click.option(
    "--nccl-lib", metavar="PATH", help="A libnccl.so to ask instead of the one that would be loaded."
)
@options.json_option
def command(mpi: str | None, nccl_lib: str | None, as_json: bool) -> None:
    """Say whether this machine is fit to measure; every fault comes with the command that mends it."""
    findings = doctor.examine(mpi, nccl_lib)
    if as_json:
        click.echo(
            json.dumps(
                {"fit": doctor.fit(findings), "findings": [f.to_json() for f in findings]}, ensure_ascii=False
            )
        )
    else:
        _print(findings)
    if not doctor.fit(findings):
        faults = [f.name for f in findings if f.status == trial.FAULT]
        raise UnansweredError(f"not fit to measure: {', '.join(faults)}")


def _print(findings: list[trial.Finding]) -> None:
    console = Console()
    table = Table(box=None, show_header=False, pad_edge=False, width=min(console.width, _WIDTH))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        word, style = _SIGNS[finding.status]
        table.add_row(Text(finding.name), Text(word, style=style), Text(finding.text))
    console.print(table)
    for finding in findings:
        if finding.remedy and finding.status != trial.SKIPPED:
            console.print(Text(f"\n{finding.name}: to mend it"))
            console.print(Text(f"  {finding.remedy}"), soft_wrap=True)
