"""The site: its reference has all that the code has, and its pages are where links say."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from contracts import gateway_metrics, metrics, registry_metrics, triton_metrics
from contracts.metrics import Metric
from headrace import errors

ROOT = Path(__file__).parent.parent


def tool(name: str) -> Any:
    """A module of ``docs/tools``, which no package holds."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


hooks, reference = tool("hooks"), tool("reference")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    pages: dict[str, str] = reference.pages()
    return pages


def test_every_command_and_option_is_on_its_page(made: dict[str, str]) -> None:
    from headrace.cli import whole_program

    page = made["cli.md"]
    found = list(reference.commands(whole_program()))
    assert {name for name, _ in found} >= {"headrace up", "headrace rollout status"}
    for name, command in found:
        assert f"\n## {name}\n" in page
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert f"`{parameter.opts[0]}`" in page, name


def test_every_exit_status_is_on_its_page(made: dict[str, str]) -> None:
    statuses = {
        value.exit_status
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.HeadraceError)
    }
    assert len(statuses) > 5
    assert [each for each in statuses if f"| `{each}` |" not in made["exit-codes.md"]] == []


def test_every_metric_is_on_its_page_once(made: dict[str, str]) -> None:
    names = {
        value.name
        for module in (metrics, gateway_metrics, registry_metrics, triton_metrics)
        for value in vars(module).values()
        if isinstance(value, Metric)
    }
    page = made["metrics.md"]
    assert len(names) > 50
    assert [name for name in names if page.count(f"| `{name}` |") != 1] == []


def test_every_field_of_an_endpoint_is_on_its_page(made: dict[str, str]) -> None:
    page = made["modelendpoint.md"]
    for field in (
        "metadata.name", "spec.model", "spec.version.pin", "spec.rollout.steps[].weight",
        "spec.rollout.checks.latency.fail.relative", "status.routes[].ref.package",
    ):  # fmt: skip
        assert f"| `{field}` |" in page, field


def test_every_record_of_an_event_is_on_its_page(made: dict[str, str]) -> None:
    assert {"TextRecord", "PredictionEvent", "EventBatch"} <= {
        each.__name__ for each in reference.structs()
    }
    assert "| `request_id` |" in made["events.md"]
    assert "- `RolledBack`" in made["events.md"]


def test_every_value_of_the_chart_is_on_its_page(made: dict[str, str]) -> None:
    schema = json.loads((ROOT / "charts" / "headrace" / "values.schema.json").read_text("utf-8"))

    def leaves(node: dict[str, Any], path: str = "") -> list[str]:
        inner = node.get("properties", {})
        below = [leaf for name, each in inner.items() for leaf in leaves(each, f"{path}.{name}")]
        return below if inner else [path.removeprefix(".")]

    named = leaves(schema)
    assert len(named) > 200
    assert [name for name in named if f"| `{name}` |" not in made["values.md"]] == []


def test_a_table_of_the_reference_has_as_many_cells_in_each_row(made: dict[str, str]) -> None:
    for name, page in made.items():
        for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
            assert len(widths) == 1, (name, table[:200])


def nav() -> list[str]:
    class Loader(yaml.SafeLoader):
        """Leaves Python's own tags alone."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    whole = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)

    def walk(node: Any) -> list[str]:
        if isinstance(node, str):
            return [node]
        inner = node.values() if isinstance(node, dict) else node
        return [page for each in inner for page in walk(each)]

    return walk(whole["nav"])


def test_the_navigation_names_each_page_once_and_the_whole_reference() -> None:
    named = nav()
    assert len(named) == len(set(named))
    generated = {f"reference/{name}" for name in reference.pages()}
    assert generated <= set(named)
    assert [name for name in set(named) - generated if not (ROOT / "docs" / name).is_file()] == []


@pytest.mark.parametrize(
    ("page", "link", "path"),
    [
        ("docs/install.md", "values.md", "docs/values.md"),
        ("docs/migrate/tei.md", "../clients.md", "docs/clients.md"),
        ("docs/first-hour.md", "../README.md", "README.md"),
        ("README.md", "examples/rollouts", "examples/rollouts/README.md"),
        ("docs/install.md", "https://example.com/a.md", None),
        ("docs/install.md", "nothing.md", None),
    ],
)
def test_a_link_means_a_file_of_the_repository(page: str, link: str, path: str | None) -> None:
    assert hooks.target(page, link) == path


def test_links_are_put_right_and_code_is_left_alone() -> None:
    text = "[a](../README.md#x) [b](values.md)\n```\n[c](../README.md)\n```\n"
    assert hooks.rewritten(text, "docs/migrate/../install.md") == (
        "[a](repository/README.md#x) [b](values.md)\n```\n[c](../README.md)\n```\n"
    )
    assert hooks.rewritten("[a](docs/install.md)", "README.md") == "[a](../install.md)"


def test_what_pages_link_to_is_followed_through_linked_pages() -> None:
    assert "README.md" in hooks.linked(["docs/first-hour.md"])
    assert "CHANGELOG.md" in hooks.linked(["docs/first-hour.md"])  # which the README links to


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("text\n- a\n- b", "text\n\n- a\n- b"),
        ("- a\n  more\n\n  again", "- a\n    more\n\n    again"),
        ("1. a\n\n   | t |\n", "1. a\n\n    | t |\n"),
        ("1. a\n\n   b\n2. c\n3. d", "1. a\n\n    b\n\n2. c\n3. d"),
        ("- a\n\n  ```\n  - b\n  ```", "- a\n\n    ```\n    - b\n    ```"),
        ("```\ntext\n- a\n```", "```\ntext\n- a\n```"),
        ("- a\n\ntext\n\n    code", "- a\n\ntext\n\n    code"),
    ],
)
def test_lists_get_the_spaces_that_the_sites_markdown_wants(given: str, wanted: str) -> None:
    assert hooks.respaced(given) == wanted


def test_a_search_finds_the_glossary_first_and_decisions_last() -> None:
    assert (
        hooks.boost("glossary.md") > hooks.boost("rollout.md") > hooks.boost("decisions/0001-x.md")
    )


def test_a_new_reader_gets_everywhere_from_the_first_page() -> None:
    """To the first hour, a dashboard, and values for a cluster with S3: two links each."""
    first = links("docs/index.md")
    second = first.union(*(links(page) for page in first if page.endswith(".md")))
    assert {"docs/first-hour.md", "docs/dashboards.md"} <= first
    assert "examples/values/s3-cloud-role.yaml" in second
    assert "docs/production.md" in second


def links(page: str) -> set[str]:
    """The files of the repository that a page links to."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = {hooks.target(page, link[2]) for link in hooks._LINK.finditer(text)}
    return {path for path in found if path is not None}


@pytest.mark.parametrize("word", ["A/B", "session affinity", "control", "bake", "canary"])
def test_the_glossary_has_the_fields_words(word: str) -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", glossary, re.MULTILINE)
    assert any(re.search(rf"(?i)(?<!\w){word}(?!\w)", heading) for heading in headings)


def test_every_picture_is_on_a_page_and_says_in_words_what_it_shows() -> None:
    shown: dict[str, list[str]] = {}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")):
        for said, name in re.findall(
            r"!\[([^\]]*)\]\(\S*?images/(\S+?)\)", page.read_text("utf-8")
        ):
            shown.setdefault(name, []).append(said)
    there = {path.name for path in (ROOT / "docs" / "images").iterdir()}
    assert shown.keys() == there
    assert there >= {f"{name}.png" for name in get_args(tool("screenshots").Picture)}
    assert [name for name, texts in shown.items() if any(len(said) < 30 for said in texts)] == []
