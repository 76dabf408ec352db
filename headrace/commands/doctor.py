"""``headrace doctor``: every finding with what to do about it; exit status 3 if one is bad."""

from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from headrace.commands.output import console, print_json
from headrace.errors import MachineError
from headrace.stack import doctor
from headrace.stack.doctor import Verdict
from headrace.stack.settings import StackSettings

_SIGN = {Verdict.OK: "[green]✓[/]", Verdict.TIGHT: "[yellow]![/]", Verdict.BAD: "[red]✗[/]"}


def run(settings: StackSettings, *, as_json: bool) -> None:
    """Shows the findings."""
    findings = doctor.findings(doctor.examine(settings), settings)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table.grid(padding=(0, 2))
        for finding in findings:
            table.add_row(_SIGN[finding.verdict], finding.name, escape(finding.found))
            if finding.advice:
                table.add_row("", "", f"[bold]{escape(finding.advice)}[/]")
        console.print(table)
    bad = [finding.name for finding in findings if finding.verdict is Verdict.BAD]
    if bad:
        raise MachineError(f"Not ready for headrace up: {', '.join(bad)}.")
