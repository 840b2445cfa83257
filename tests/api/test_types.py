"""Quantities, defaults that depend on other fields, schema, round trip, reference."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_api import reference
from harness_api.base import Options, format_path
from harness_api.batching import Batching, BatchPolicy, Emulation
from harness_api.checking import KINDS, check_value
from harness_api.fields import quantity_bytes
from harness_api.inferenceservice import InferenceService
from harness_api.latency_profile import LatencyProfileResource
from harness_api.load import load_text
from harness_api.messages import aliases
from harness_api.models import Format, Model
from harness_api.scheduling import Goal
from harness_api.storage import file_path
from harness_api.tensors import Datatype, InputTensor, OutputTensor
from harness_api.worker_groups import Accelerator, Autoscaling, WorkerGroup
from harness_cli.validate import validate_files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.api.helpers_api import load_document, profile_document, service_document

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "inferenceservice.md"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1), ("2Gi", 2 << 30), ("512Mi", 512 << 20), ("1.5k", 1500), ("1e3", 1000), ("2E", 2 * 10**18), ("0.5Ki", 512),
     (".5M", 500_000), ("1500e-3", 2), ("1E2", 100), ("7Ei", 7 << 60), ("0.1", 1)],
)  # fmt: skip
def test_quantities(text, expected):
    """Kubernetes' suffixes, decimal exponents and rounding up."""
    assert quantity_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "10 GB", "1,5", "-1", "1m", "Gi", "1gi", "0", "8Ei", "1e99", "1\n", "٣"]
)
def test_bad_quantities(text):
    """Everything else is refused."""
    with pytest.raises(ValueError, match=r"must be a Kubernetes quantity|is out of range"):
        quantity_bytes(text)


def test_construction_in_code_checks_rules():
    """Types are strict in Python too, by either name, and frozen."""
    assert Emulation(setup_microseconds=1) == Emulation(setupMicroseconds=1)
    with pytest.raises(ValidationError, match="give one form"):
        Emulation(setup_microseconds=1, points=[{"batchSize": 1, "microseconds": 1}])
    with pytest.raises(ValidationError):
        Emulation(setup_microseconds=True)
    with pytest.raises(ValidationError, match="frozen"):
        Emulation(setup_microseconds=1).setup_microseconds = 2


def test_queue_delay_in_force():
    """The delay applies to MaxDelay alone and is 5 ms there by default."""
    assert Batching().effective_queue_delay_microseconds == 0
    assert Batching(policy="MaxDelay").effective_queue_delay_microseconds == 5000
    delayed = Batching(policy=BatchPolicy.MAX_DELAY, max_queue_delay_microseconds=0)
    assert delayed.effective_queue_delay_microseconds == 0


def test_replicas_goal_and_label_in_force():
    """Defaults that depend on other fields."""
    scaled = WorkerGroup(name="g", autoscaling=Autoscaling(min_replicas=2, max_replicas=3))
    assert (WorkerGroup(name="g").initial_replicas, scaled.initial_replicas) == (1, 2)
    assert Accelerator(resource="nvidia.com/gpu", product="A").effective_product_label == "nvidia.com/gpu.product"
    document = service_document()
    document["spec"]["workerGroups"] = [{"name": "g", "autoscaling": {"maxReplicas": 3}}]
    (service,) = load_document(document).services
    assert service.spec.effective_goal is Goal.ACCELERATORS


def test_file_uris():
    """Relative, absolute and escaped paths."""
    assert file_path("file:a/b") == Path("a/b")
    assert file_path("file:///a%20b") == Path("/a b")
    assert file_path("file://localhost/a") == Path("/a")
    for bad in ("file:", "file://host/a", "file:a#b", "file:%00"):
        with pytest.raises(ValueError, match=r"names|query|NUL"):
            file_path(bad)


def test_paths_in_yaml_form():
    """Indexes in brackets, odd keys in quotes."""
    assert format_path(("spec", "models", 2, "name")) == "spec.models[2].name"
    assert format_path(("metadata", "labels", "a/b")) == 'metadata.labels["a/b"]'


@pytest.mark.parametrize("kind", [InferenceService, LatencyProfileResource])
def test_json_schema_has_the_names_of_the_documents(kind):
    """Schemas can be made (CRDs are generated from them), name fields as YAML does and describe every one."""
    schema = kind.model_json_schema(by_alias=True)
    assert {"apiVersion", "kind", "metadata", "spec", "status"} == set(schema["properties"])
    for definition in (schema, *schema["$defs"].values()):
        for name, field in definition.get("properties", {}).items():
            assert "_" not in name
            assert field.get("description") or "$ref" in field, name
        if "properties" in definition:
            assert definition["additionalProperties"] is False


def test_sizes_are_bounded_everywhere():
    """Every list, text and integer of the schema has a bound, so that objects and CEL costs stay bounded."""
    unbounded = []

    def look(node, where):
        if not isinstance(node, dict):
            return
        if node.get("type") == "array" and "maxItems" not in node:
            unbounded.append(where)
        if node.get("type") == "string" and not {"maxLength", "enum", "const"} & set(node):
            unbounded.append(where)
        for key, child in node.items():
            for each in child if isinstance(child, list) else [child]:
                look(each, f"{where}.{key}")

    for kind in KINDS.values():
        schema = kind.model_json_schema(by_alias=True)
        for name, definition in {**schema["$defs"], kind.__name__: schema}.items():
            look(definition, name)
    assert unbounded == []


def test_reference_is_fresh():
    """docs/reference/inferenceservice.md is what the types say; `make generate` writes it."""
    assert REFERENCE.read_text(encoding="utf-8") == reference.render()


def test_reference_lists_every_field():
    """Each field of each type has its row."""
    page = reference.render()
    for kind in (*KINDS.values(), Model, InputTensor, OutputTensor, WorkerGroup):
        for alias in aliases(kind):
            assert f"| `{alias}` |" in page


def test_validate_files_reports_one_by_one(tmp_path):
    """The CLI's function: every file in order, with its own result."""
    good = tmp_path / "good.yaml"
    good.write_text("apiVersion: x\n")
    reports = validate_files([good, str(tmp_path / "missing.yaml")], local=True, trust_repository=False)
    assert [report.path.name for report in reports] == ["good.yaml", "missing.yaml"]
    assert [report.ok for report in reports] == [False, False]
    assert len(reports[0].result.faults) == 2


tensor_names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


@st.composite
def models(draw, name):
    """A sound Profiled model."""
    top = draw(st.integers(0, 64))
    sizes = None
    if top and draw(st.booleans()):
        sizes = sorted({*draw(st.lists(st.integers(1, top), max_size=4)), top})
    weight = draw(st.integers(1, 3))
    return Model(
        name=name,
        version=draw(st.sampled_from(["", "1", "42"])),
        format=Format.PROFILED,
        max_batch_size=top,
        execution_sizes=sizes,
        inputs=[InputTensor(name=draw(tensor_names), datatype=Datatype.FP32, shape=draw(st.sampled_from([[], [4], [-1, 3]])))],
        outputs=[OutputTensor(name=draw(tensor_names), datatype=Datatype.INT8, shape=[1])],
        weight=weight,
        max_weight=draw(st.one_of(st.none(), st.integers(weight, 9))),
        device_memory=draw(st.sampled_from([None, "2Gi"])),
        emulation=Emulation(setup_microseconds=draw(st.integers(1, 100))),
    )  # fmt: skip


@st.composite
def services(draw):
    """A sound service."""
    names = draw(
        st.lists(st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z0-9]", fullmatch=True), min_size=1, max_size=3, unique=True)
    )
    groups = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    return InferenceService(
        metadata={"name": draw(st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True))},
        spec={
            "models": [draw(models(name)) for name in names],
            "workerGroups": [WorkerGroup(name=name, replicas=draw(st.integers(0, 9))) for name in groups],
        },
    )  # fmt: skip


@given(services())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_round_trip(service):
    """What is written out reads back equal, in full and with only what was set."""
    for exclude_unset in (False, True):
        document = service.model_dump_json(exclude_none=True, exclude_unset=exclude_unset)
        if exclude_unset:
            document = service.model_copy(
                update={"api_version": service.api_version, "kind": service.kind}
            ).model_dump_json(exclude_none=True, exclude_unset=True)
        result = load_text(document)
        assert result.faults == []
        assert result.services == [service]


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["TorchExport", "2Gi", "file:x"])
)  # fmt: skip
all_names = sorted(
    {alias for kind in (*KINDS.values(), Model, WorkerGroup, InputTensor, Batching) for alias in aliases(kind)}
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(st.sampled_from(all_names), st.text(max_size=6)), inner, max_size=6)
    ),
    max_leaves=30,
)  # fmt: skip
places = st.sampled_from(
    ["spec", "spec.models", "spec.models.0", "spec.models.0.inputs", "spec.models.0.batching", "spec.workerGroups", "metadata"]
)  # fmt: skip


@given(values)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_value_raises(value):
    """Whatever a document holds, the answer is an object or a list of faults."""
    typed, faults = check_value(value, Options())
    assert (typed is None) == bool(faults)


@given(st.sampled_from([service_document, profile_document]), places, values)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_part_raises(make, place, value):
    """The same with one part of a sound document replaced: the deeper code is reached."""
    document = make()
    *parents, last = place.split(".")
    holder = document
    for part in parents:
        holder = holder[int(part)] if part.isdigit() else holder.setdefault(part, [{}] if part == "models" else {})
    if isinstance(holder, list):
        holder[int(last)] = value
    else:
        holder[last] = value
    typed, faults = check_value(document, Options(local=False))
    assert (typed is None) == bool(faults)
    for path, message in faults:
        assert isinstance(format_path(path), str)
        assert message


@given(st.text(st.characters(codec="utf-8"), max_size=200) | st.text("[]{}:,&*-?!#|>'\"% \n\tab01~<.", max_size=80))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_text_raises(text):
    """Whatever a file holds, reading it gives faults and no exception."""
    result = load_text(text)
    assert result.faults
