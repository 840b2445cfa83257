"""Parameters of a request: ours, reserved ones, the caller's own (docs/decisions/0003-parameters.md)."""

from __future__ import annotations

import math

import pytest
from harness_core.descriptor import LOWEST_PRIORITY
from harness_runtime.dataplane import parameters
from harness_runtime.errors import RequestEnded

from tests.runtime.dataplane.builders import make_spec

SPEC = make_spec(weight=2.0, max_weight=10.0, priority=0)
REFUSED = [
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", True),
    ("timeout", 1.5),
    ("timeout", "100"),
    ("timeout", 2**63),
    ("priority", -1),
    ("priority", 9),
    ("priority", True),
    ("priority", 1.0),
    ("priority", "1"),
    ("weight", 0),
    ("weight", -1.0),
    ("weight", math.nan),
    ("weight", math.inf),
    ("weight", True),
    ("weight", ""),
    ("weight", "heavy"),
    ("weight", "nan"),
    ("weight", "1e999"),
    ("weight", "1_0"),
    ("weight", " 1"),
    ("weight", "1" * 100),
    ("sequence_id", 7),
    ("sequence_id", "a"),
    ("sequence_start", True),
    ("sequence_end", True),
    ("harness_late", True),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_bad_values_are_refused_and_never_defaulted(name, value):
    """protocol.md §2: INVALID_ARGUMENT names the parameter."""
    with pytest.raises(RequestEnded) as caught:
        parameters.read({name: value}, SPEC)
    assert f"parameter '{name}'" in caught.value.message
    assert caught.value.status.grpc == "INVALID_ARGUMENT"


@pytest.mark.parametrize(("value", "want"), [(3, 3.0), (0.5, 0.5), ("2.5", 2.5), ("1e-3", 0.001), (99, 10.0)])
def test_weight_is_a_number_or_a_number_in_text_and_capped(value, want):
    """Old clients have no double; maxWeight bounds what a caller may claim."""
    assert parameters.read({"weight": value}, SPEC).weight == want


@pytest.mark.parametrize(
    ("given", "default", "want"),
    [({}, 0, LOWEST_PRIORITY), ({}, 3, 3), ({"priority": 0}, 3, 3), ({"priority": 8}, 3, 8)],
)
def test_priority_zero_is_the_models_default(given, default, want):
    """1 is the highest explicit level; without any the request comes after all explicit ones."""
    assert parameters.read(given, make_spec(priority=default)).priority == want


def test_defaults_without_parameters():
    """A request that says nothing has the model's weight and no timeout."""
    wishes = parameters.read({}, SPEC)
    assert (wishes.timeout_us, wishes.weight, wishes.custom) == (None, 2.0, {})


def test_only_the_callers_own_parameters_are_kept():
    """B018: ours are consumed, those of other parts of the protocol are ignored, all others are kept as they are."""
    given = {"timeout": 5000, "priority": 1, "weight": 1, "k": "b", "n": 1, "f": 1.5, "flag": False}
    ignored = {"binary_data_output": True, "headers": "x", "triton_enable_empty_final_response": True, "sequence_id": 0}
    wishes = parameters.read(given | ignored, SPEC)
    assert wishes.custom == {"k": "b", "n": 1, "f": 1.5, "flag": False}
    assert wishes.timeout_us == 5000


def test_shared_memory_and_classification_are_unimplemented():
    """protocol.md §2: said openly instead of ignored."""
    for name in ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"):
        with pytest.raises(RequestEnded) as caught:
            parameters.check_tensor("input", "X", {name: 1})
        assert caught.value.status.grpc == "UNIMPLEMENTED"
    with pytest.raises(RequestEnded, match="classification is not supported"):
        parameters.check_tensor("output", "Y", {"classification": 3})
    parameters.check_tensor("output", "Y", {"classification": 0, "note": "mine"})


def test_a_long_fairness_id_is_refused():
    """Cut off, two tenants could become one."""
    assert parameters.check_tenant("t" * 256) == "t" * 256
    with pytest.raises(RequestEnded, match="257 characters, at most 256"):
        parameters.check_tenant("t" * 257)
