"""BERT encoder with mean pooling and L2 normalisation, written for export: no constant of the graph names a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Mapping


class Layer(nn.Module):
    """Self-attention and feed-forward, each followed by residual and LayerNorm (post-norm, as in BERT)."""

    def __init__(self, hidden: int, heads: int, intermediate: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.attended = nn.Linear(hidden, hidden)
        self.attention_norm = nn.LayerNorm(hidden, eps=eps)
        self.up = nn.Linear(hidden, intermediate)
        self.down = nn.Linear(intermediate, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=eps)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """``x`` [batch, tokens, hidden], ``bias`` [batch, 1, 1, tokens], 0 or very negative."""
        batch, tokens, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        attention = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = self.attention_norm(x + self.attended(attention.transpose(1, 2).reshape(batch, tokens, hidden)))
        return self.output_norm(x + self.down(functional.gelu(self.up(x))))


class SentenceEncoder(nn.Module):
    """Token ids and mask, both int64 [batch, tokens] → unit vectors, float32 [batch, hidden]."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, eps = config["hidden_size"], config["layer_norm_eps"]
        self.words = nn.Embedding(config["vocab_size"], hidden)
        # Positions and the one token type in use, added up at load time.
        self.positions = nn.Parameter(torch.zeros(config["max_position_embeddings"], hidden))
        self.norm = nn.LayerNorm(hidden, eps=eps)
        self.layers = nn.ModuleList(
            Layer(hidden, config["num_attention_heads"], config["intermediate_size"], eps)
            for _ in range(config["num_hidden_layers"])
        )

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        # Multiplied, not cast: the cast would be exported with a check of the device it was traced on.
        mask = attention_mask * 1.0
        # The lowest float instead of -inf: a padding row (mask all 0) stays finite.
        bias = ((1.0 - mask) * torch.finfo(self.positions.dtype).min)[:, None, None, :]
        bias = bias.expand(-1, 1, input_ids.shape[1], -1)
        x = self.norm(self.words(input_ids) + self.positions[: input_ids.shape[1]])
        for layer in self.layers:
            x = layer(x, bias)
        weights = mask[:, :, None]
        mean = (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return functional.normalize(mean, p=2.0, dim=1)

    @classmethod
    def from_weights(cls, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> SentenceEncoder:
        """Build from tensors under the names that BERT checkpoints use; every parameter must be given."""
        encoder = cls(config)
        encoder.load_state_dict(_renamed(weights, config["num_hidden_layers"]))
        return encoder


def _renamed(weights: Mapping[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    out = {
        "words.weight": weights["embeddings.word_embeddings.weight"],
        "positions": weights["embeddings.position_embeddings.weight"]
        + weights["embeddings.token_type_embeddings.weight"][0],
        "norm.weight": weights["embeddings.LayerNorm.weight"],
        "norm.bias": weights["embeddings.LayerNorm.bias"],
    }
    names = {
        "attended": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "output_norm": "output.LayerNorm",
    }
    for index in range(layers):
        source = f"encoder.layer.{index}"
        for part in ("weight", "bias"):
            qkv = [weights[f"{source}.attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            out[f"layers.{index}.qkv.{part}"] = torch.cat(qkv)
            for ours, theirs in names.items():
                out[f"layers.{index}.{ours}.{part}"] = weights[f"{source}.{theirs}.{part}"]
    return out
