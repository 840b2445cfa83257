"""Bucket names and the buckets a configuration declares."""

from __future__ import annotations

from harness_runtime.lanes import bucket_name, declared_buckets, padded_size
from harness_runtime.tensors import Buckets, Datatype, TensorSpec

from tests.runtime.dataplane.builders import make_spec, seq_spec


def test_a_model_of_fixed_shapes_has_one_bucket():
    assert [bucket.name for bucket in declared_buckets(make_spec())] == [""]


def test_inputs_with_equal_sizes_grow_together():
    """Token ids and mask: two buckets, not four; named as a request's own lane is."""
    spec = seq_spec()
    buckets = declared_buckets(spec)
    assert [(bucket.name, bucket.shapes) for bucket in buckets] == [
        ("IDS=8,MASK=8", ((8,), (8,))),
        ("IDS=16,MASK=16", ((16,), (16,))),
    ]
    assert [bucket_name(spec.inputs, bucket.shapes) for bucket in buckets] == [bucket.name for bucket in buckets]


def test_inputs_with_other_sizes_are_combined():
    inputs = (
        TensorSpec("A", Datatype.FP32, (-1, 2), Buckets(0, (4, 8))),
        TensorSpec("B", Datatype.FP32, (3, -1), Buckets(1, (5,))),
    )
    names = [bucket.name for bucket in declared_buckets(make_spec(inputs=inputs))]
    assert names == ["A=4,B=5", "A=8,B=5"]


def test_free_dimensions_cannot_be_listed():
    """Their shapes are known only as they come."""
    assert declared_buckets(make_spec(inputs=(TensorSpec("X", Datatype.FP32, (-1,)),))) == []


def test_the_next_size_up():
    buckets = Buckets(0, (8, 16))
    assert [padded_size(buckets, size) for size in (1, 8, 9, 16, 17)] == [8, 8, 16, 16, None]
