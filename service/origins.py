"""Origins of pages in browsers, as an operator writes them. Pure."""

import re

ANY = "*"
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_USUAL_PORTS = {"http": 80, "https": 443}
_MOST_PORT = 65_535


def read_origins(text: str) -> tuple[str, ...]:
    """Origins as an operator writes them, with commas, in the form that browsers send.

    Raises:
        ValueError: one is none; says what it should look like.
    """
    words = [word.lower() for part in text.split(",") if (word := part.strip())]
    return (ANY,) if words == [ANY] else tuple(_origin(word) for word in words)


def _origin(word: str) -> str:
    match = _ORIGIN.fullmatch(word)
    if match is None or int(match[3] or 0) > _MOST_PORT:
        raise ValueError(
            f"{word!r} is no origin of pages: expected scheme and host, with a port if it is not "
            "the usual one, and nothing behind them, such as https://app.example.com; or * alone"
        )
    scheme, host, port = match.groups()
    usual = port is None or int(port) == _USUAL_PORTS.get(scheme)
    return f"{scheme}://{host}" + ("" if usual else f":{int(port)}")
