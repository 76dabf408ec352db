"""The example's encoder-decoder is exported, run by a real Triton, and translates as its README."""

from pathlib import Path

import pytest
from loaded_script import loaded
from own_servers import TritonProcess
from real_triton import OverTriton, brought
from served_models import asking, converted

from contracts.endpoint import EndpointLimits
from contracts.tasks import Task
from gateway.engine.triton import TritonEngine
from registry.packages.store import PackageStore

pytestmark = [
    pytest.mark.real,
    pytest.mark.export,
    pytest.mark.timeout(3600),  # it is trained here
    pytest.mark.filterwarnings("default"),  # the libraries' own
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "translation"


async def test_all_sentences_are_translated_and_three_as_the_readme_shows(
    tmp_path: Path, triton: TritonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("torch", "transformers"):
        pytest.importorskip(module, reason="needs the export environment")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    example = loaded(EXAMPLE / "translate.py")
    stored = tmp_path / "store"
    model, _ = converted(example.NAME, example.save, tmp_path / "version", store_folder=stored)
    assert model.task is Task.TEXT_GENERATION
    await brought(tmp_path, PackageStore(stored.as_uri()), triton, model.ref)
    engine = TritonEngine(triton.grpc)
    patient = EndpointLimits(timeout_seconds=60)
    lines = []
    async with asking({example.NAME: model}, OverTriton(engine), patient) as (client, _):
        for english, german in example.sentences():
            body = example.request(english)
            answer = (await client.post("/v1/completions", json=body)).raise_for_status().json()
            assert answer["choices"][0]["text"].strip() == german
            assert answer["choices"][0]["finish_reason"] == "stop"
            lines += [example.shown(english, answer)] if english in example.SHOWN else []
    await engine.close()
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert len(lines) == len(example.SHOWN)
    assert all(line in readme for line in lines)
