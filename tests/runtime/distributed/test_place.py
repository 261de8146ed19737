"""What a launcher's variables say, and what is wrong with them."""

from __future__ import annotations

import pytest

from atlas.errors import EnvironmentUnfit
from atlas.runtime.distributed.place import Place

GIVEN = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


def test_alone() -> None:
    assert Place.here({}) is None
    assert Place.here(GIVEN | {"RANK": "0", "WORLD_SIZE": "1"}) is None


def test_one_of_several() -> None:
    place = Place.here(GIVEN | {"LOCAL_RANK": "1", "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_MAX_RESTARTS": "3"})
    assert place == Place(1, 3, "127.0.0.1", 29500, local=1, attempt=1, restarts=2)
    assert not place.serves
    assert place.on_loopback
    assert not Place(0, 2, "10.0.0.7", 29500).on_loopback
    assert not Place(0, 2, "first", 29500).on_loopback


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"RANK": "3"}, "RANK is 3, but ranks run from 0 to 2"),
        ({"RANK": "one"}, "RANK is 'one', which is no number"),
        ({"MASTER_PORT": ""}, "WORLD_SIZE is set, but not MASTER_PORT"),
    ],
)
def test_variables_that_do_not_fit(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(EnvironmentUnfit, match=said) as error:
        Place.here(GIVEN | wrong)
    assert "torchrun" in error.value.hint
