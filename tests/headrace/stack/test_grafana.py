"""Dashboards in a Grafana: all in one folder, again at each start, and no fault without one."""

import json

import pytest
from dripping import LONG_HEAD, dripping
from http_server import Answer, Request, http_server
from own_ports import own_ports

from headrace.stack.grafana import bring_dashboards


async def test_every_dashboard_comes_into_one_folder_in_place_of_an_earlier_one() -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        asked.append(request)
        return Answer(412 if request.path == "/g/api/folders" else 200, {"status": "success"})

    with http_server(answer) as url:
        said = await bring_dashboards(f"{url}/g/", "secret")
    assert said == f"{url}/g/dashboards/f/headrace"
    folder, *dashboards = asked
    assert json.loads(folder.body)["uid"] == "headrace"
    sent = [json.loads(each.body) for each in dashboards]
    assert {each.path for each in dashboards} == {"/g/api/dashboards/db"}
    assert {each["dashboard"]["title"] for each in sent} == {
        f"Headrace / {name}" for name in ("Drift", "Endpoints", "Gateway", "Rollout")
    }
    assert all(each["overwrite"] and each["folderUid"] == "headrace" for each in sent)
    assert {each.headers["authorization"] for each in asked} == {"Bearer secret"}


async def test_a_name_and_a_password_are_taken_from_the_url_and_never_shown() -> None:
    asked: list[Request] = []

    def answer(request: Request) -> Answer:
        asked.append(request)
        return Answer(401)

    with http_server(answer) as url:
        said = await bring_dashboards(url.replace("://", "://admin:pass@"))
    assert said.startswith(f"{url} refuses dashboards (401 Unauthorized): give a name")
    sent = {name.lower(): value for name, value in asked[0].headers.items()}
    assert sent["authorization"].startswith("Basic ")


@pytest.mark.parametrize("password", ["", "admin:pass@"])
async def test_a_grafana_that_is_away_is_a_sentence(password: str) -> None:
    (port,) = own_ports(1)
    said = await bring_dashboards(f"http://{password}127.0.0.1:{port}")
    assert said.startswith(f"http://127.0.0.1:{port} does not answer, so that it has no dashboards")


async def test_a_grafana_that_drips_holds_no_start_up() -> None:
    with dripping(LONG_HEAD) as port:
        said = await bring_dashboards(f"http://127.0.0.1:{port}", seconds=1.0)
    assert said.endswith("does not answer, so that it has no dashboards: timed out")
