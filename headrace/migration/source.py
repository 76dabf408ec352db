"""Reads a manifest of another server and keeps account of what was used of it.

A translator takes the fields that it carries over. All others are reported by their paths, so that
nothing of a manifest is ever lost without a word. Values are never shown: some are secrets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from headrace.errors import BadDocumentError

# What Kubernetes writes into an object by itself.
_WRITTEN_BY_KUBERNETES = frozenset({
    "creationTimestamp", "finalizers", "generation", "managedFields", "ownerReferences",
    "resourceVersion", "selfLink", "uid",
})  # fmt: skip
_DOMAINS_OF_TOOLS = re.compile(
    r"(^|\.)(kubernetes\.io|k8s\.io|kserve\.io|kubeflow\.org|knative\.dev|istio\.io|seldon\.io|helm\.sh"
    r"|argoproj\.io|headrace\.dev)$"
)


class ManifestMapping:
    """A mapping of a manifest, whose fields are taken one by one.

    Attributes:
        path: where it stands, as ``spec.predictor``; empty for the whole document.
    """

    def __init__(self, value: Mapping[str, Any], path: str = "") -> None:
        self.path = path
        self._value = value
        self._taken: set[str] = set()
        self._parts: dict[str, ManifestMapping] = {}

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter([str(name) for name in self._value])

    def path_of(self, name: str) -> str:
        """The path of a field of this mapping."""
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str) -> object:
        """The value of a field, which then counts as used; None if it is missing."""
        self._taken.add(name)
        return self._value.get(name)

    def text(self, name: str) -> str:
        """A field as text; empty if it is missing.

        Raises:
            BadDocumentError: it is a mapping or a list.
        """
        value = self.take(name)
        if isinstance(value, Mapping | list):
            raise BadDocumentError(f"{self.path_of(name)}: must be text.")
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else str(value)

    def number(self, name: str) -> float | None:
        """A field as a number; None if it is missing.

        Raises:
            BadDocumentError: it is no number.
        """
        value = self.text(name)
        try:
            return float(value) if value else None
        except ValueError:
            raise BadDocumentError(f"{self.path_of(name)}: must be a number.") from None

    def part(self, name: str) -> "ManifestMapping":
        """A field that is a mapping; an empty one if it is missing.

        Raises:
            BadDocumentError: it is something else.
        """
        value = self.take(name)
        if value is None:
            return ManifestMapping({}, self.path_of(name))
        if not isinstance(value, Mapping):
            raise BadDocumentError(f"{self.path_of(name)}: must be a mapping.")
        return self._child(value, self.path_of(name))

    def parts(self, name: str) -> list["ManifestMapping"]:
        """A field that is a list of mappings; none if it is missing.

        Raises:
            BadDocumentError: it is something else.
        """
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
            raise BadDocumentError(f"{self.path_of(name)}: must be a list of mappings.")
        return [
            self._child(each, f"{self.path_of(name)}[{number}]")
            for number, each in enumerate(value)
        ]

    def texts(self, name: str) -> list[str]:
        """A field that is a list of texts, as the arguments of a container.

        Raises:
            BadDocumentError: it is something else.
        """
        value = self.take(name)
        if value is None:
            return []
        if not isinstance(value, list) or any(isinstance(each, Mapping | list) for each in value):
            raise BadDocumentError(f"{self.path_of(name)}: must be a list of texts.")
        return [str(each) for each in value]

    def list_left(self) -> list[str]:
        """The paths of fields that nobody took, here and below, in the document's order."""
        found = []
        for name in self._value:
            if name in self._taken or self._value[name] in (None, "", [], {}):
                found += [
                    path
                    for part in self._parts.values()
                    if part.path == self.path_of(name)
                    or part.path.startswith(f"{self.path_of(name)}[")
                    for path in part.list_left()
                ]
            else:
                found.append(self.path_of(str(name)))
        return found

    def _child(self, value: Mapping[str, Any], path: str) -> "ManifestMapping":
        return self._parts.setdefault(path, ManifestMapping(value, path))


def documents(text: str, source: str) -> list[ManifestMapping]:
    """The documents of a YAML text, each a mapping; the items of a ``List`` are documents too.

    Raises:
        BadDocumentError: the text is no YAML, or holds something else.
    """
    try:
        found = [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, ValueError) as error:
        raise BadDocumentError(f"{source} is no YAML: {error}") from None
    whole = [
        item
        for each in found
        for item in (each["items"] if isinstance(each, Mapping) and _is_list(each) else [each])
    ]
    if not whole:
        raise BadDocumentError(f"{source} holds no document.")
    if not all(isinstance(each, Mapping) for each in whole):
        raise BadDocumentError(f"{source}: a manifest begins with apiVersion, kind and metadata.")
    return [ManifestMapping(each) for each in whole]


def _is_list(document: Mapping[str, Any]) -> bool:
    return document.get("kind") == "List" and isinstance(document.get("items"), list)


class ObjectHead:
    """What every object of Kubernetes begins with.

    Attributes:
        name: ``metadata.name``; empty if it is missing.
        namespace: ``metadata.namespace``; empty if it is missing.
        annotations: those that people wrote. Those of tools are dropped.
    """

    def __init__(self, document: ManifestMapping) -> None:
        document.take("apiVersion")
        document.take("kind")
        document.take("status")
        metadata = document.part("metadata")
        for name in _WRITTEN_BY_KUBERNETES:
            metadata.take(name)
        self.name = metadata.text("name")
        self.namespace = metadata.text("namespace")
        annotations = metadata.part("annotations")
        self.annotations = {
            key: annotations.text(key) for key in annotations if not _is_of_a_tool(key)
        }
        for key in annotations:
            if _domain(key) == "kubectl.kubernetes.io":
                annotations.take(key)


def _domain(key: str) -> str:
    return key.partition("/")[0] if "/" in key else ""


def _is_of_a_tool(key: str) -> bool:
    return bool(_DOMAINS_OF_TOOLS.search(_domain(key)))


def flags(words: Sequence[str]) -> dict[str, str]:
    """The flags of a command line, without their dashes and with ``_`` for ``-``.

    ``--name value``, ``--name=value`` and a bare ``--name`` are read; the last has the value
    "true". ``-p`` is read like ``--p``. Words that belong to no flag are left out.

    >>> flags(["--model-id", "a/b", "--auto-truncate", "--dtype=float16"])
    {'model_id': 'a/b', 'auto_truncate': 'true', 'dtype': 'float16'}
    """
    found: dict[str, str] = {}
    last = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name, given, value = word.lstrip("-").partition("=")
            last = name.replace("-", "_")
            found[last] = value if given else "true"
            if given:
                last = ""
        elif last:
            found[last] = word
            last = ""
    return found
