"""All objects of one kind in one namespace, as paths of the API. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind in one namespace.

    Attributes:
        version: ``v1``, or a group and its version.
        plural: the kind's name in URLs.
        namespace: of the objects.
        selector: labels that an object must have; empty: any.
    """

    version: str
    plural: str
    namespace: str
    selector: str = ""

    @property
    def path(self) -> str:
        """Where they are listed, watched and created."""
        root = "/apis" if "/" in self.version else "/api"
        return f"{root}/{self.version}/namespaces/{self.namespace}/{self.plural}"

    @property
    def query(self) -> dict[str, str]:
        """The parameters of a list."""
        return {"labelSelector": self.selector} if self.selector else {}

    def one(self, name: str, part: str = "") -> str:
        """Where one object is, or a part of it such as ``status``."""
        return f"{self.path}/{name}/{part}" if part else f"{self.path}/{name}"
