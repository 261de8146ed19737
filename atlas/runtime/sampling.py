"""The next token from a row of logits. The same seed and step give the same draw, whatever came before."""

from __future__ import annotations

import hashlib

import torch


def next_token(logits: torch.Tensor, temperature: float, seed: int, step: int) -> int:
    """Greedy where `temperature` is 0 (the lowest id of equals), else drawn from softmax(logits / temperature).

    `logits` is one row [vocab]. The draw is in float64 from a generator seeded by (seed, step), so that a run that
    is taken up again in its middle goes on as it would have.
    """
    if temperature == 0:
        return int(logits.argmax())
    digest = hashlib.sha256(f"{seed}:{step}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    weights = torch.softmax(logits.cpu().double() / temperature, dim=-1)
    return int(torch.multinomial(weights, 1, generator=generator))
