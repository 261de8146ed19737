"""A running state, taken from one cache and put into another."""

from __future__ import annotations

import pytest
import torch

from atlas.runtime.references.recurrent import put, recurrent, taken


@pytest.fixture
def layers() -> list[object]:
    """Three layers of caches as transformers makes them: two with a running state, one with keys and values."""
    from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

    return [LinearAttentionLayer(), LinearAttentionLayer(), DynamicLayer()]


def test_a_layer_with_keys_and_values_has_no_running_state(layers: list[object]) -> None:
    assert [recurrent(layer) for layer in layers] == [True, True, False]


def test_a_state_goes_on_in_another_cache_and_stays_as_it_was(layers: list[object]) -> None:
    one, other = layers[:2]
    one.update_conv_state(torch.ones(1, 3, 4))  # type: ignore[attr-defined]
    one.update_recurrent_state(torch.full((1, 2, 5), 7.0))  # type: ignore[attr-defined]
    state = taken(one)
    assert state.nbytes == 4 * (12 + 10)
    put(other, state)
    other.update_recurrent_state(torch.zeros(1, 2, 5))  # type: ignore[attr-defined]
    other.conv_states[0].zero_()  # type: ignore[attr-defined]
    assert [float(tensor.max()) for tensor in state] == [1.0, 7.0]
    assert other.has_previous_state == {0: True}  # type: ignore[attr-defined]
    assert float(other.recurrent_states[0].max()) == 0.0  # type: ignore[attr-defined]
