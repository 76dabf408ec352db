"""Which endpoint is reconciled next: fair to tenants, rollouts first. Pure.

Any number of endpoints wait; a few are worked on at a time. After any sequence of calls:

* An endpoint waits once at most, and is never worked on twice at a time.
* Tenants take turns: while a tenant has an endpoint that may be taken, no other tenant is taken
  from twice in a row of the same urgency.
* No tenant has more than its share of the work at a time, so that endpoints whose work hangs never
  hold up another tenant's.
* What is urgent goes first, but of ``_TURNS`` that are taken one is not urgent while any waits.
"""

from collections import Counter, OrderedDict

_TURNS = 4


class WorkQueue:
    """Keys that wait, and those that are worked on.

    ``most`` keys are worked on at a time, of one tenant at most ``most_of_tenant``.
    """

    def __init__(self, most: int, most_of_tenant: int) -> None:
        self._most = most
        self._most_of_tenant = most_of_tenant
        # by urgency: tenant -> its keys, in the order in which they came
        self._waiting: dict[bool, OrderedDict[str, OrderedDict[str, None]]] = {
            True: OrderedDict(),
            False: OrderedDict(),
        }
        self._places: dict[str, tuple[bool, str]] = {}  # of a key that waits
        self._running: dict[str, str] = {}  # key -> tenant
        self._of_tenant: Counter[str] = Counter()
        self._urgent_in_a_row = 0

    @property
    def running(self) -> frozenset[str]:
        """Keys that are worked on."""
        return frozenset(self._running)

    @property
    def waiting(self) -> int:
        """How many keys wait."""
        return len(self._places)

    def add(self, key: str, tenant: str, *, urgent: bool = False) -> None:
        """Has a key wait, unless it does already or is worked on."""
        known = self._places.get(key)
        if key in self._running or known in ((urgent, tenant), (True, tenant)):
            return
        if known is not None:
            self._leave(key)
        self._places[key] = (urgent, tenant)
        self._waiting[urgent].setdefault(tenant, OrderedDict())[key] = None

    def drop(self, key: str) -> None:
        """Has a key wait no more, if it does: its endpoint is gone."""
        if key in self._places:
            self._leave(key)

    def take(self) -> str | None:
        """The next key to work on; None if none may be taken now."""
        if len(self._running) >= self._most:
            return None
        is_turn_of_others = self._urgent_in_a_row >= _TURNS - 1
        for urgent in (False, True) if is_turn_of_others else (True, False):
            tenant = self._next_tenant(urgent=urgent)
            if tenant is not None:
                self._urgent_in_a_row = self._urgent_in_a_row + 1 if urgent else 0
                return self._take(tenant, urgent=urgent)
        return None

    def finish(self, key: str) -> None:
        """The work on a key has ended."""
        tenant = self._running.pop(key)
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]

    def _next_tenant(self, *, urgent: bool) -> str | None:
        for tenant in self._waiting[urgent]:
            if self._of_tenant[tenant] < self._most_of_tenant:
                return tenant
        return None

    def _take(self, tenant: str, *, urgent: bool) -> str:
        key = next(iter(self._waiting[urgent][tenant]))
        self._waiting[urgent].move_to_end(tenant)
        self._leave(key)
        self._running[key] = tenant
        self._of_tenant[tenant] += 1
        return key

    def _leave(self, key: str) -> None:
        urgent, tenant = self._places.pop(key)
        keys = self._waiting[urgent][tenant]
        del keys[key]
        if not keys:
            del self._waiting[urgent][tenant]
