"""Names, versions and states of models."""

from __future__ import annotations

import pytest
from harness_core.outcome import Outcome
from harness_runtime.errors import RequestEnded
from harness_runtime.model import ModelState
from harness_runtime.registry import Registry

from tests.runtime.dataplane.builders import make_entry, make_registry, make_spec


def versions(*names: str, state: ModelState = ModelState.READY) -> Registry:
    return make_registry(*(make_entry(make_spec(version=name), state) for name in names))


@pytest.mark.parametrize(("name", "version"), [("nope", ""), ("echo", "99"), ("echo", "abc"), ("", "")])
def test_unknown_names_and_versions_are_not_found(name, version):
    """B023: any version that is not configured is NOT_FOUND, whatever it looks like."""
    with pytest.raises(RequestEnded) as caught:
        versions("1").find(name, version)
    assert caught.value.status.grpc == "NOT_FOUND"
    assert caught.value.outcome is Outcome.INVALID


def test_a_model_that_is_not_ready_is_unavailable_with_a_hint():
    """B023: a known model while it loads is not NOT_FOUND; the hint is the one the registry was given."""
    registry = versions("1", state=ModelState.LOADING)
    with pytest.raises(RequestEnded) as caught:
        registry.find("echo")
    assert (caught.value.status.grpc, caught.value.reason) == ("UNAVAILABLE", "model_loading")
    assert caught.value.retry_after_ms
    registry.set_state("digest-echo-1", ModelState.UNAVAILABLE, "executor lost", retry_after_ms=4200)
    with pytest.raises(RequestEnded, match="UNAVAILABLE: executor lost") as caught:
        registry.find("echo", "1")
    assert caught.value.retry_after_ms == 4200


def test_no_version_is_the_highest_ready_one():
    """Numbers are compared as numbers, above words; versions that are not ready are passed over."""
    registry = versions("9", "10", "beta")
    assert registry.versions("echo") == ["10", "9", "beta"]
    assert registry.find("echo").spec.version == "10"
    registry.set_state("digest-echo-10", ModelState.LOADING)
    assert registry.find("echo").spec.version == "9"
    assert registry.find("echo", "beta").spec.version == "beta"
    assert not registry.ready()


def test_ready_means_every_model_and_at_least_one():
    """An empty server is not ready."""
    assert not Registry().ready()
    assert versions("1", "2").ready()


def test_a_name_and_version_is_configured_once():
    """A second entry would capture the first one's requests."""
    with pytest.raises(ValueError, match="model 'echo' version '1' is configured twice"):
        versions("1", "1")


def test_listeners_hear_of_every_change():
    """The health service follows the registry by this."""
    registry, heard = Registry(), []
    registry.subscribe(lambda: heard.append(registry.ready()))
    registry.add(make_entry(make_spec(), ModelState.LOADING))
    registry.set_state("digest-echo-1", ModelState.READY)
    assert heard == [False, True]
    with pytest.raises(KeyError):
        registry.set_state("nobody", ModelState.READY)
