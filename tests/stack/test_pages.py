"""What pages tell newcomers to type, typed on the stack as it stands there."""

from pathlib import Path

import pytest
from page_walk import walked
from running_stack import RunningStack

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

HERE = "tests/stack/test_pages.py"


@pytest.mark.parametrize(
    "path", ["README.md", "docs/start.md", "docs/feedback.md", "docs/endpoints.md"]
)
def test_a_page_is_walked(path: str, stack: RunningStack, tmp_path: Path) -> None:
    with walked(path, HERE, stack, tmp_path) as page:
        assert page.walk()
