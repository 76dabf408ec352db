"""``headrace doctor``: every finding with what to do about it; exit status 3 if one is bad."""

from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from headrace.commands.output import console, print_json
from headrace.errors import MachineError
from headrace.invocation import is_structured
from headrace.options import CACHE, HOME, Cache, Gateways, Home, Tritons, make_absolute
from headrace.program import App, refuse_cluster
from headrace.stack import doctor as machine
from headrace.stack.doctor import FindingLevel
from headrace.stack.settings import StackSettings

_SIGN = {
    FindingLevel.OK: "[green]✓[/]",
    FindingLevel.TIGHT: "[yellow]![/]",
    FindingLevel.BAD: "[red]✗[/]",
}

app = App()


@app.declare()
def doctor(
    home: Home = HOME, cache: Cache = CACHE, gateways: Gateways = 1, tritons: Tritons = 1
) -> None:
    """Says what of this machine is missing for the local stack."""
    refuse_cluster(
        "headrace doctor looks at this machine; in a cluster, helm test says what is wrong."
    )
    settings = StackSettings(
        home=make_absolute(home), cache=make_absolute(cache), gateways=gateways, tritons=tritons
    )
    findings = machine.findings(machine.examine(settings), settings)
    if is_structured():
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table.grid(padding=(0, 2))
        for finding in findings:
            table.add_row(_SIGN[finding.verdict], finding.name, escape(finding.found))
            if finding.advice:
                table.add_row("", "", f"[bold]{escape(finding.advice)}[/]")
        console.print(table)
    bad = [finding.name for finding in findings if finding.verdict is FindingLevel.BAD]
    if bad:
        raise MachineError(f"Not ready for headrace up: {', '.join(bad)}.")
