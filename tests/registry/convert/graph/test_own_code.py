"""What own code makes when it is built, and what transformers 5 makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs the export environment")

from registry.convert.errors import VersionError  # noqa: E402
from registry.convert.graph import own_code  # noqa: E402

pytestmark = [pytest.mark.export, pytest.mark.filterwarnings("default")]

CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel

class OwnConfig(PretrainedConfig):
    model_type = "NAME"

class Own(PreTrainedModel):
    config_class = OwnConfig
    BEFORE
    def __init__(self, config, base=10.0, **further):
        super().__init__(config)
        self.linear = torch.nn.Linear(4, 4)
        INIT
        self.post_init()
    def forward(self, x):
        return self.linear(x)
"""
TABLE = "torch.arange(8).float() / base"


def load(folder: Path, name: str, *, init: str, before: str = "", **options: Any) -> Any:
    """Of a checkpoint that has the linear layer alone; each ``name`` is a class of its own."""
    from safetensors.torch import save_file
    from transformers import AutoModel

    folder.mkdir()
    code = CODE.replace("NAME", name).replace("INIT", init).replace("BEFORE", before)
    (folder / f"modeling_{name}.py").write_text(code)
    auto = {"AutoConfig": f"modeling_{name}.OwnConfig", "AutoModel": f"modeling_{name}.Own"}
    said = {"model_type": name, "auto_map": auto, "architectures": ["Own"]}
    (folder / "config.json").write_text(json.dumps(said))
    weights = {"linear.weight": torch.ones(4, 4), "linear.bias": torch.ones(4)}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    torch.full((1000,), torch.nan)  # what memory holds
    with own_code.loading(folder) as lacking:
        network = AutoModel.from_pretrained(folder, trust_remote_code=True, **options)
    assert torch.equal(network.linear.weight.float(), weights["linear.weight"])
    return network, lacking


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("buffer", f'self.register_buffer("table", {TABLE}, persistent=False)'),
        ("attribute", f"self.table = {TABLE}"),
        ("module", f"self.table_of = torch.nn.Module(); self.table = {TABLE}"),
    ],
)
def test_a_table_is_what_the_code_computes(tmp_path: Path, name: str, init: str) -> None:
    network, lacking = load(tmp_path / "v", f"own-{name}".replace("-", "_"), init=init)
    torch.testing.assert_close(network.table, torch.arange(8).float() / 10.0)
    assert lacking == []


def test_a_table_that_the_files_could_hold_and_that_the_code_does_not_miss(tmp_path: Path) -> None:
    network, lacking = load(
        tmp_path / "v",
        "own_ignored",
        init='self.register_buffer("position_ids", torch.arange(8))',
        before='_keys_to_ignore_on_load_missing = [r"position_ids"]',
    )
    assert torch.equal(network.position_ids, torch.arange(8))
    assert lacking == []


def test_a_table_is_made_of_what_the_code_is_given(tmp_path: Path) -> None:
    made = f'self.register_buffer("table", {TABLE}, persistent=False); config.hidden = 3'
    network, _ = load(tmp_path / "v", "own_given", init=made, base=4.0)
    torch.testing.assert_close(network.table, torch.arange(8).float() / 4.0)


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("chance", 'self.register_buffer("table", torch.randn(8), persistent=False)'),
        ("weights", "self.table = self.linear.weight.data.abs()"),
    ],
)
def test_a_table_by_chance_is_refused_by_its_name(tmp_path: Path, name: str, init: str) -> None:
    with pytest.raises(VersionError, match="Own has a table table, which no file holds"):
        load(tmp_path / "v", f"own_by_{name}", init=init)


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("data", "self.held = self.linear.weight.data"),
        ("buffer_of", 'self.register_buffer("held", self.linear.weight.data, persistent=False)'),
        ("list", "self.held_in = [self.linear.weight]"),
        ("function", "w = self.linear.weight; self.of = lambda: w"),
    ],
)
def test_what_else_holds_weights_holds_the_loaded_ones(
    tmp_path: Path, name: str, init: str
) -> None:
    network, lacking = load(tmp_path / "v", f"own_alias_{name}", init=init)
    held = [
        *getattr(network, "held_in", ()),
        *(found for found in (getattr(network, "held", None),) if found is not None),
        *(function() for function in (getattr(network, "of", None),) if function is not None),
    ]
    assert len(held) == 1
    assert torch.equal(held[0], torch.ones(4, 4))
    assert lacking == []


def test_a_table_of_half_precision_is_the_same_each_time(tmp_path: Path) -> None:
    made = 'self.register_buffer("table", torch.ones(8) * 0.1, persistent=False)'
    network, _ = load(tmp_path / "v", "own_half", init=made, dtype=torch.bfloat16)
    assert network.table.dtype is torch.bfloat16
    assert torch.get_default_dtype() is torch.float32


def test_first_weights_that_loading_leaves_out_are_left_out(tmp_path: Path) -> None:
    """Code may read what its configuration has not: transformers never comes there."""
    before = "def _init_weights(self, module): self.config.no_such_field"
    network, _ = load(tmp_path / "v", "own_first", init=f"self.table = {TABLE}", before=before)
    torch.testing.assert_close(network.table, torch.arange(8).float() / 10.0)


def test_weights_that_the_code_would_not_miss_are_told_of(tmp_path: Path) -> None:
    _, lacking = load(
        tmp_path / "v",
        "own_lacking",
        init="self.second = torch.nn.Linear(4, 4)",
        before='_keys_to_ignore_on_load_missing = [r"second"]',
    )
    assert sorted(lacking) == ["second.bias", "second.weight"]


def test_code_that_does_without_xformers_finds_none(tmp_path: Path) -> None:
    init = """
        try:
            import xformers.ops as xops
        except ImportError:
            xops = None
        self.attention = None if xops is None else xops.memory_efficient_attention"""
    network, _ = load(tmp_path / "v", "own_without", init=init)
    assert network.attention is None


def test_a_gated_layer_is_the_formula_of_its_halves() -> None:
    """As in https://github.com/facebookresearch/xformers/blob/main/xformers/ops/swiglu_op.py."""
    torch.manual_seed(0)
    layer, x = own_code.gated_layer()(4, 6, 3), torch.randn(2, 4)
    gate = x @ layer.w12.weight[:6].T + layer.w12.bias[:6]
    value = x @ layer.w12.weight[6:].T + layer.w12.bias[6:]
    right = (gate * torch.sigmoid(gate) * value) @ layer.w3.weight.T + layer.w3.bias
    torch.testing.assert_close(layer(x), right)
