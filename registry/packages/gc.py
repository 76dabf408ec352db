"""Removes packages that nobody needs any more, but the newest of each model.

What an endpoint names is never removed, and what is removed by mistake is only converted again.
"""

from collections.abc import Iterable
from typing import Protocol

from contracts.endpoint import EndpointStatus, ModelEndpoint
from contracts.manifest import Manifest
from contracts.model import ModelRef
from registry.packages.store import PackageDamagedError, PackageMissingError, PackageStore


class Packages(Protocol):
    """What of a store is needed here."""

    def packages(self) -> list[str]:
        """Names of all packages."""
        ...

    def manifest(self, package: str) -> Manifest:
        """A package's manifest."""
        ...

    def leftovers(self) -> list[str]:
        """Names of what publishers and deleters that were killed left behind."""
        ...

    def delete(self, package: str) -> None:
        """Takes a package away."""
        ...


def collect(
    store: Packages | str, endpoints: Iterable[ModelEndpoint], *, keep: int = 5
) -> list[str]:
    """Removes what is not needed.

    Args:
        store: the packages, or their store's URL.
        endpoints: all of them; every package that a status names stays.
        keep: of each model, packages of this number of the newest versions stay too.

    Raises:
        ValueError: ``keep`` is below 1.
        registry.packages.store.StoreUnavailableError: the store can't be read or written.
    """
    packages = PackageStore(store) if isinstance(store, str) else store
    removed = needless(packages, endpoints, keep=keep)
    for package in removed:
        packages.delete(package)
    return removed


def needless(store: Packages, endpoints: Iterable[ModelEndpoint], *, keep: int) -> list[str]:
    """What is not needed; the arguments and errors are those of ``collect``."""
    if keep < 1:
        raise ValueError("keep at least one package of each model")
    found = _manifests(store)
    needed = list_named(endpoints) | _find_newest(found, keep)
    return [package for package in found if package not in needed]


def list_named(endpoints: Iterable[ModelEndpoint]) -> set[str]:
    """What endpoints serve, bring into service, or may go back to."""
    return {ref.package for endpoint in endpoints for ref in refs_of(endpoint.status)}


def refs_of(status: EndpointStatus) -> list[ModelRef]:
    """The packages that a status names; one may be named several times."""
    refs = [*status.packages, *status.next_packages, *(route.ref for route in status.routes)]
    if status.candidate is not None and status.candidate.ref is not None:
        refs.append(status.candidate.ref)
    if status.rollout is not None:
        refs += [status.rollout.candidate, status.rollout.stable]
    if status.last_rollout is not None:
        refs.append(status.last_rollout.stable)  # an undo goes back to it
    return refs


def _manifests(store: Packages) -> dict[str, Manifest | None]:
    """Every package's manifest; None for a damaged one, which nobody can use."""
    found: dict[str, Manifest | None] = {}
    for package in store.packages():
        try:
            found[package] = store.manifest(package)
        except PackageDamagedError:
            found[package] = None
        except PackageMissingError:  # removed by someone else just now
            continue
    return found


def _find_newest(found: dict[str, Manifest | None], keep: int) -> set[str]:
    by_model: dict[str, list[tuple[int, str]]] = {}
    for package, manifest in found.items():
        if manifest is not None:
            by_model.setdefault(manifest.model, []).append((int(manifest.version), package))
    return {package for versions in by_model.values() for _, package in sorted(versions)[-keep:]}
