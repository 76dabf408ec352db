import json
import shlex
from pathlib import Path

from headrace.commands.up import invitation
from headrace.stack.settings import Ports, StackSettings
from headrace.stack.up import Started

SETTINGS = StackSettings(home=Path("/h"), cache=Path("/c"), ports=Ports(gateway_http=18080))


def test_the_curl_line_is_one_shell_command_with_a_json_body() -> None:
    lines = invitation(Started(SETTINGS, 8.0, ("sentiment-classifier",), {}))
    (line,) = [line for line in lines if "curl" in line]
    words = shlex.split(line)
    assert "http://127.0.0.1:18080/endpoints/sentiment-classifier" in words
    assert json.loads(words[-1])["inputs"]


def test_an_endpoint_that_does_not_answer_is_named_with_the_reason() -> None:
    lines = invitation(Started(SETTINGS, 8.0, (), {"tone": "version 1 Blocked: no room"}))
    assert any("tone (version 1 Blocked: no room)" in line for line in lines)
    assert not any("curl" in line for line in lines)
