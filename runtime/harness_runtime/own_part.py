"""What of a batch's output belongs to one request: its rows, without the padding of its bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness_runtime.text import quoted, shape_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from harness_runtime.ports import Work
    from harness_runtime.tensors import TensorSpec


def own_part(spec: TensorSpec, rows: npt.NDArray[Any], work: Work) -> npt.NDArray[Any]:
    """The request's own rows of an output, its ``trim_dims`` cut back to the request's own sizes; a view.

    Raises:
        ValueError: the output does not carry the padded dimension that it declares.
    """
    for dim in spec.trim_dims:
        rows = _trim(spec, rows, dim, work)
    return rows


def _trim(spec: TensorSpec, array: npt.NDArray[Any], dim: int, work: Work) -> npt.NDArray[Any]:
    """Cut dimension ``dim`` (without rows)."""
    source = _source(work, dim)
    if source is None:
        return array
    padded, own = source
    axis = dim + (work.spec.max_batch_size > 0)
    if axis >= array.ndim or array.shape[axis] != padded:
        raise ValueError(
            f"output {quoted(spec.name)}: dimension {axis} should be the padded {padded}, "
            f"the model returned shape {shape_text(array.shape)}"
        )
    return array[(slice(None),) * axis + (slice(own),)]


def _source(work: Work, dim: int) -> tuple[int, int] | None:
    """Padded and own size behind an output's trimmed dimension.

    They are those of the first input with buckets on the same dimension, or else of the first input with buckets.
    """
    batched = work.spec.max_batch_size > 0
    bucketed = [(spec.buckets.dim, index) for index, spec in enumerate(work.spec.inputs) if spec.buckets is not None]
    if not bucketed:
        return None
    source_dim, index = next((pair for pair in bucketed if pair[0] == dim), bucketed[0])
    return work.padded[index][source_dim], work.inputs[index].array.shape[source_dim + batched]
