"""The page of clients has every status that a caller can get."""

import re
from pathlib import Path

from gateway.errors import CLIENT_GONE_STATUS, GatewayError

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
ROW = re.compile(r"(\d{3}) `([a-z_]+)`")


def all_errors(kind: type[GatewayError]) -> list[type[GatewayError]]:
    return [kind, *(error for child in kind.__subclasses__() for error in all_errors(child))]


def test_the_table_of_statuses_has_every_error_and_no_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text[text.index("| step | status and code") :].split("\n\n")[0]
    listed = {(int(status), code) for status, code in ROW.findall(table)}
    assert listed == {(int(error.status), error.code) for error in all_errors(GatewayError)}
    assert str(CLIENT_GONE_STATUS) in table


def test_no_message_is_longer_than_a_page() -> None:
    assert GatewayError("x" * 10**6).message == "x" * 4096 + "..."
    assert GatewayError("x" * 4096).message == "x" * 4096
