"""Small networks of checkpoints' own code, built as encoders on the Hub that bring theirs are.

``NEO`` turns pairs of numbers as complex ones, and has RMS norms and gated layers, as NeoBERT has;
``ALIBI`` has no positions, only a bias by distance, and gated layers, as jina-bert-v2 has. What a
file says for ``Own`` is replaced by the name of the class.
"""

import json
from pathlib import Path
from typing import Any

CONFIG = """
from transformers import PretrainedConfig

class OwnConfig(PretrainedConfig):
    model_type = "headrace-Own"
    def __init__(self, vocab_size=50, hidden_size=16, num_heads=2, **further):
        super().__init__(**further)
        self.vocab_size, self.hidden_size, self.num_heads = vocab_size, hidden_size, num_heads
"""
_HEAD = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu, gelu
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from .configuration_Own import OwnConfig
"""
NEO = (
    _HEAD
    + """
class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        self.w12 = nn.Linear(width, 4 * width, bias=False)
        self.w3 = nn.Linear(2 * width, width, bias=False)
        self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x, mask, turns):
        rows, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(rows, length, self.heads, -1).chunk(3, dim=-1)
        q, k = turned(q, turns), turned(k, turns)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        mixed = scaled_dot_product_attention(q, k, v, mask)
        x = x + self.wo(mixed.transpose(1, 2).reshape(x.shape))
        gate, up = self.w12(self.second(x)).chunk(2, dim=-1)
        return x + self.w3(silu(gate) * up)

def turned(x, turns):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)

class OwnForSequenceClassification(PreTrainedModel):
    config_class = OwnConfig
    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(2))
        self.norm = nn.RMSNorm(config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()
    def get_input_embeddings(self):
        return self.words
    def forward(self, input_ids, attention_mask=None, return_dict=True):
        size = self.config.hidden_size // self.config.num_heads
        speed = 1.0 / 10000.0 ** (torch.arange(0, size, 2)[: size // 2].float() / size)
        angles = torch.outer(torch.arange(input_ids.shape[1]).float(), speed)
        turns = torch.polar(torch.ones_like(angles), angles)[None, :, None]
        mask = torch.where(attention_mask == 1, 0.0, float("-inf"))[:, None, None]
        x = self.words(input_ids)
        for layer in self.layers:
            x = layer(x, mask, turns)
        return SequenceClassifierOutput(logits=self.classifier(self.norm(x)[:, 0]))
"""
)
ALIBI = (
    _HEAD
    + """
class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense, self.wo = nn.Linear(width, width), nn.Linear(2 * width, width)
        self.gated = nn.Linear(width, 4 * width, bias=False)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, bias):
        split = lambda y: y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + bias
        mixed = torch.matmul(scores.softmax(-1), v).transpose(1, 2).reshape(x.shape)
        x = self.first(x + self.dense(mixed))
        up, gate = self.gated(x).chunk(2, dim=-1)
        return self.second(x + self.wo(up * gelu(gate)))

class OwnModel(PreTrainedModel):
    config_class = OwnConfig
    def __init__(self, config, **_):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(2))
        self.post_init()
    def get_input_embeddings(self):
        return self.words
    def forward(self, input_ids, attention_mask=None, return_dict=True):
        places = torch.arange(input_ids.shape[1])
        apart = (places[None] - places[:, None]).abs().float()
        slopes = 2.0 ** -torch.arange(1, self.config.num_heads + 1).float()
        lost = (1.0 - attention_mask[:, None, None].float()) * torch.finfo(torch.float32).min
        bias = lost - slopes[None, :, None, None] * apart
        x = self.words(input_ids)
        for layer in self.layers:
            x = layer(x, bias)
        return BaseModelOutput(last_hidden_state=x)
"""
)

CLASSIFIER = "ForSequenceClassification"
SHAPES = {
    "Neo": (NEO, f"AutoModel{CLASSIFIER}", CLASSIFIER),
    "Alibi": (ALIBI, "AutoModel", "Model"),
}


def write(libraries: tuple[Any, Any], folder: Path, shape: str) -> None:
    """Adds code and weights of a shape, whose name its classes have; the tokeniser stays."""
    torch, transformers = libraries
    from safetensors.torch import save_file

    code, loader, kind = SHAPES[shape]
    (folder / f"configuration_{shape}.py").write_text(CONFIG.replace("Own", shape))
    (folder / f"modeling_{shape}.py").write_text(code.replace("Own", shape))
    said = json.loads((folder / "config.json").read_text())
    of_code = {
        "AutoConfig": f"configuration_{shape}.{shape}Config",
        loader: f"modeling_{shape}.{shape}{kind}",
    }
    said.update(architectures=[f"{shape}{kind}"], auto_map=of_code)
    (folder / "config.json").write_text(json.dumps(said))
    own: dict[str, Any] = {"trust_remote_code": True}
    config = transformers.AutoConfig.from_pretrained(folder, **own)
    network = getattr(transformers, loader).from_config(config, **own)
    with torch.no_grad():
        for each in network.parameters():
            if each.dim() > 1:  # answers differ from text to text
                each.copy_(torch.randn(each.shape) * 0.3)
    save_file(network.state_dict(), folder / "model.safetensors", {"format": "pt"})
