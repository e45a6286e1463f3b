"""What the tests share."""

from __future__ import annotations

import pytest

#: A sweep of 16 runs of some milliseconds each.
QUESTION = {
    "machine": "pack:2 l3:1 core:4 pu:2",
    "mitigation": ["baseline", "all"],
    "seeds": 2,
    "warm_up": "1ms",
    "duration": "5ms",
}


@pytest.fixture
def question() -> dict[str, object]:
    """Return the options of a small sweep of cyclic."""
    return dict(QUESTION)
