"""``collbench check``: does this machine reach what is expected of it?"""

import json
from pathlib import Path

import click

from collbench import atomic, results
from collbench import check as checking
from collbench.cli import options as opt
from collbench.errors import UsageError


@click.command()
@click.argument("run", required=False)
@click.option("--expect", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="TOML file of floors and ceilings.")  # fmt: skip
@click.option("--write-expect", is_flag=True, help="Make such a file from RUN, which was good; needs -o.")
@click.option("--tolerance", type=opt.PERCENT, default="10%", show_default=True, metavar="SHARE",
              help="Written by --write-expect.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="The file that --write-expect writes.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing -o file.")
@opt.json_option
def command(
    run: str | None, expect: Path | None, write_expect: bool, tolerance: float, output: Path | None, force: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Check a run against absolute limits: ceilings for latency, floors for bandwidth, by cell pattern.

    Exit status: 0 every expected cell was measured and passes; 1 one fails; 3 one was not measured.
    """
    if write_expect == (expect is not None):
        raise UsageError("say one of --expect FILE (check) and --write-expect -o FILE (make one)")
    loaded = results.read(results.find(run))
    if expect is None:
        if output is None:
            raise UsageError("--write-expect needs -o FILE")
        atomic.write_text(output, checking.write(loaded, tolerance), force=force)
        if as_json:
            click.echo(json.dumps({"file": str(output)}))
        click.echo(
            f"wrote {output}; check later runs with 'collbench check RUN --expect {output}'", err=as_json
        )
        return 0
    if output is not None:
        raise UsageError("-o goes with --write-expect")
    findings = checking.check(loaded, checking.read(expect))
    status = checking.status(findings)
    if as_json:
        click.echo(
            json.dumps({"checks": [f.to_json() for f in findings], "status": status}, ensure_ascii=False)
        )
    else:
        for finding in findings:
            click.echo(finding.sentence)
    counts = ", ".join(
        f"{n} {word}" for word in (checking.FAIL, checking.UNMEASURED, checking.PASS)
        if (n := sum(f.answer == word for f in findings))
    )  # fmt: skip
    click.echo(f"{loaded.name}: {counts} [exit {status}]", err=as_json)
    return status
