"""What a program and its children ask of the network, by what they tell the kernel.

``strace`` sees what C++ libraries do too, which no hook of Python's does.
"""

import re
from pathlib import Path

_ADDRESS = re.compile(
    r'sin6?_port=htons\((?P<port>\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"(?P<host>[^"]+)"'
)
_SENDING = re.compile(r"\b(?:connect|sendto|sendmsg|sendmmsg)\(")


def traced(command: list[str], record: Path) -> list[str]:
    """The command line that runs ``command`` and writes its calls into ``record``."""
    calls = "trace=connect,sendto,sendmsg,sendmmsg"
    # -D: the process that is started is the program, and gets its signals.
    return ["strace", "-D", "-f", "-qq", "--seccomp-bpf", "-e", calls, "-o", str(record), *command]


def addresses(record: Path) -> set[tuple[str, int]]:
    """Each host and port that was connected to or sent to."""
    return {
        (found["host"], int(found["port"]))
        for line in record.read_text(errors="replace").splitlines()
        if _SENDING.search(line)
        for found in _ADDRESS.finditer(line)
        if found["port"] != "0"  # the resolver asks the kernel for a route and sends nothing
    }
