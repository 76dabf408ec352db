"""A program: a gateway on the echo engine that writes down how late its event loop comes.

``probed_gateway.py FILE`` and the gateway's flags. A timer is due every 2 ms. At SIGUSR1 the
milliseconds by which each was late since the last signal go to FILE, as JSON. What holds the loop,
or Python's lock, shows there, whoever was asking at that moment.
"""

import asyncio
import json
import signal
import sys
from pathlib import Path
from time import monotonic

import gateway.main as program

sys.path.append(str(Path(__file__).parent))  # started with -P, it has no folder of its own there
from echo_engine import EchoEngine

PERIOD_SECONDS = 0.002


class Probed(program.Gateway):
    """A gateway with such a timer."""

    async def run(self) -> None:
        """Serves until a signal."""
        loop, late = asyncio.get_running_loop(), list[float]()

        def tick(due: float) -> None:
            now = monotonic()
            late.append(round(1000 * (now - due), 3))
            loop.call_later(PERIOD_SECONDS, tick, now + PERIOD_SECONDS)

        def tell() -> None:
            part = Path(f"{sys.argv[1]}.part")
            part.write_text(json.dumps(late), encoding="utf-8")
            part.rename(sys.argv[1])
            late.clear()

        loop.add_signal_handler(signal.SIGUSR1, tell)
        tick(monotonic())
        await super().run()


if __name__ == "__main__":
    program.Gateway = Probed  # type: ignore[misc]
    sys.exit(program.main(sys.argv[2:], connect=lambda _: EchoEngine(2, None)))
