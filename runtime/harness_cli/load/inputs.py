"""The inputs of requests: random ones of a model's signature, or a person's own from ``.npz``, JSON or text files."""

from __future__ import annotations

import json
import zipfile
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from harness_runtime.tensors import Datatype, numpy_dtype

from harness_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from harness_cli.load.config import Sample, Signature, TensorSignature

RANDOM_SAMPLES = 256
"""Different random requests; they are sent in turn."""
VARIABLE_DIM = 8
"""Size of a variable dimension of random inputs, unless given."""
SAMPLES_MAX = 100_000
"""Most requests taken from a file: all are held in memory, serialised."""


def random_samples(
    known: Signature, rows: Mapping[int, float], dims: Mapping[str, int], rng: np.random.Generator
) -> list[Sample]:
    """RANDOM_SAMPLES requests with rows drawn from ``rows``. Raises CliError for rows or dims that the model does not have.

    Floats are normal; integers are 0 or 1, and 1 where the last index is 0, which every vocabulary, mask and segment id allows;
    BYTES are eight hexadecimal digits.
    """
    _check_rows(rows, known)
    unknown = set(dims) - {tensor.name for tensor in known.inputs} - {""}
    if unknown:
        raise CliError(f"--dim names {_names(unknown)}, the inputs are {_names(t.name for t in known.inputs)}")
    sizes = _draw_rows(rows, rng)
    return [
        {tensor.name: _random(tensor, _random_shape(tensor, size, known, dims), rng) for tensor in known.inputs}
        for size in islice(sizes, RANDOM_SAMPLES)
    ]


def _random_shape(tensor: TensorSignature, rows: int, known: Signature, dims: Mapping[str, int]) -> tuple[int, ...]:
    variable = dims.get(tensor.name, dims.get("", VARIABLE_DIM))
    shape = tuple(variable if size == -1 else size for size in tensor.shape)
    return (rows, *shape) if known.batched else shape


def _random(tensor: TensorSignature, shape: tuple[int, ...], rng: np.random.Generator) -> npt.NDArray[Any]:
    if tensor.datatype is Datatype.BYTES:
        array = np.empty(shape, dtype=object)
        array.reshape(-1)[:] = [b"%08x" % value for value in rng.integers(0, 1 << 32, array.size).tolist()]
        return array
    if tensor.datatype is Datatype.BF16:
        # The upper half of an FP32 is its BF16.
        return (rng.standard_normal(shape, np.float32).view(np.uint32) >> 16).astype("<u2")
    dtype = numpy_dtype(tensor.datatype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    array = rng.integers(0, 2, shape).astype(dtype)
    if array.ndim:
        array[..., :1] = 1
    return array


def read_samples(path: Path, known: Signature, rows: Mapping[int, float], rng: np.random.Generator) -> list[Sample]:
    """Requests from a file, by its suffix. Raises CliError naming file, request and input.

    ``.npz``: arrays by input name, axis 0 = samples, cut into requests of ``rows`` rows. ``.json``: a request body of the protocol
    (``{"inputs": [{name, shape, data}]}``), or a list whose items are such bodies or plain ``{name: nested lists}``; one
    request each. ``.txt``: one line = one row of the model's only BYTES input, cut like ``.npz``.
    """
    readers = {".npz": _read_npz, ".json": _read_json, ".txt": _read_text}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise CliError(f"--input {path}: the suffix must be one of {', '.join(readers)}")
    _check_rows(rows, known)
    try:
        samples = reader(path, known, _draw_rows(rows, rng))
        check_samples(samples, known)
    except OSError as error:
        raise CliError(f"--input {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise CliError(f"--input {path}: {error}") from None
    except CliError as error:
        raise CliError(f"--input {path}: {error.message}") from None
    return samples


def check_samples(samples: Sequence[Sample], known: Signature) -> None:
    """Raise CliError for the first request that contradicts the signature."""
    if not samples:
        raise CliError("no requests")
    if len(samples) > SAMPLES_MAX:
        raise CliError(f"{len(samples)} requests, at most {SAMPLES_MAX} are held")
    want = {tensor.name for tensor in known.inputs}
    for i, sample in enumerate(samples):
        if set(sample) != want:
            raise CliError(f"request {i} has inputs {_names(sample)}, model {known.model!r} has {_names(want)}")
        counts = {len(array) if array.ndim else 0 for array in sample.values()} if known.batched else {1}
        if len(counts) != 1 or 0 in counts:
            raise CliError(
                f"request {i}: the inputs have {sorted(counts)} rows, they must have equally many and at least one"
            )
        if known.max_rows is not None and max(counts) > known.max_rows:
            raise CliError(f"request {i} has {max(counts)} rows, model {known.model!r} takes at most {known.max_rows}")
        for tensor in known.inputs:
            _check_shape(i, tensor, sample[tensor.name].shape, known)


def _check_shape(request: int, tensor: TensorSignature, shape: tuple[int, ...], known: Signature) -> None:
    own = shape[1:] if known.batched else shape
    if len(own) != len(tensor.shape) or any(
        want not in (-1, size) for want, size in zip(tensor.shape, own, strict=True)
    ):
        want_shape = [*(["rows"] if known.batched else []), *tensor.shape]
        raise CliError(
            f"request {request}: input {tensor.name!r} has shape {list(shape)}, the model wants"
            f" [{', '.join(str(size) for size in want_shape)}]"
        )


def _check_rows(rows: Mapping[int, float], known: Signature) -> None:
    if not known.batched and set(rows) != {1}:
        raise CliError(f"--rows: model {known.model!r} is not batched, a request has exactly one row")
    if known.max_rows is not None and max(rows) > known.max_rows:
        raise CliError(f"--rows: {max(rows)} rows, model {known.model!r} takes at most {known.max_rows} in a request")


def _draw_rows(rows: Mapping[int, float], rng: np.random.Generator) -> Iterator[int]:
    sizes = list(rows)
    shares = np.array(list(rows.values()), np.float64)
    while True:
        yield from (sizes[i] for i in rng.choice(len(sizes), 1024, p=shares / shares.sum()).tolist())


def _cut(arrays: Sample, known: Signature, sizes: Iterator[int]) -> list[Sample]:
    """Consecutive rows as requests of drawn sizes; rows that do not fill the last request are left out."""
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise ValueError(f"the arrays must have equally many samples on axis 0, and at least one; got {counts}")
    if not known.batched:
        return [{name: array[i] for name, array in arrays.items()} for i in range(next(iter(counts.values())))]
    total, at = next(iter(counts.values())), 0
    samples: list[Sample] = []
    for size in sizes:
        if at + size > total:
            break
        samples.append({name: array[at : at + size] for name, array in arrays.items()})
        at += size
    if not samples:
        raise ValueError(f"{total} samples do not fill a request of the rows asked for")
    return samples


def _read_npz(path: Path, known: Signature, sizes: Iterator[int]) -> list[Sample]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except zipfile.BadZipFile as error:
        raise ValueError(f"not an .npz file: {error}") from None
    return _cut({name: _typed(name, array, known) for name, array in arrays.items()}, known, sizes)


def _read_text(path: Path, known: Signature, sizes: Iterator[int]) -> list[Sample]:
    if len(known.inputs) != 1 or known.inputs[0].datatype is not Datatype.BYTES:
        raise ValueError(f"text needs a model with one BYTES input, {known.model!r} has {_described(known)}")
    lines = [line for line in path.read_bytes().splitlines() if line.strip()]
    column = np.empty(len(lines), dtype=object)
    column[:] = lines
    tensor = known.inputs[0]
    if any(size not in (-1, 1) for size in tensor.shape):
        raise ValueError(f"a line is one element, input {tensor.name!r} has shape {list(tensor.shape)}")
    return _cut({tensor.name: column.reshape(-1, *(1 for _ in tensor.shape))}, known, sizes)


def _read_json(path: Path, known: Signature, sizes: Iterator[int]) -> list[Sample]:
    del sizes  # A JSON request has the rows that it has.
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    requests = content if isinstance(content, list) else [content]
    return [_json_request(i, request, known) for i, request in enumerate(requests)]


def _json_request(index: int, request: Any, known: Signature) -> Sample:
    if not isinstance(request, dict):
        raise CliError(f"request {index} is a {type(request).__name__}, an object is needed")
    try:
        if isinstance(request.get("inputs"), list):
            return {
                item["name"]: _typed(item["name"], _nested(item["data"]), known).reshape(item["shape"])
                for item in request["inputs"]
            }
        return {name: _with_rows(name, _typed(name, _nested(data), known), known) for name, data in request.items()}
    except KeyError as error:
        raise ValueError(f"request {index}: an input lacks {error}") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"request {index}: {error}") from None


def _nested(data: Any) -> npt.NDArray[Any]:
    """Nested lists as an array; text and bytes stay whole (object elements)."""
    array = np.array(data)
    return np.array(data, dtype=object) if array.dtype.kind in "US" else array


def _with_rows(name: str, array: npt.NDArray[Any], known: Signature) -> npt.NDArray[Any]:
    """Plain JSON may leave out the rows of a single one."""
    tensor = next((tensor for tensor in known.inputs if tensor.name == name), None)
    return array[None] if known.batched and tensor is not None and array.ndim == len(tensor.shape) else array


def _typed(name: str, array: npt.NDArray[Any], known: Signature) -> npt.NDArray[Any]:
    """The array in its input's datatype; refuses what would change values. Unknown names pass, the check names them."""
    tensor = next((tensor for tensor in known.inputs if tensor.name == name), None)
    if tensor is None:
        return array
    if tensor.datatype is Datatype.BYTES:
        return array.astype(object)
    dtype = numpy_dtype(tensor.datatype)
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and dtype.kind != "f" and array.size):
        raise ValueError(f"input {name!r} is {tensor.datatype.value}, the file has {array.dtype}")
    if array.dtype.kind in "iu" and dtype.kind in "iu" and array.size:
        bounds = np.iinfo(dtype)
        if int(array.min()) < bounds.min or int(array.max()) > bounds.max:
            raise ValueError(
                f"input {name!r} is {tensor.datatype.value}: values {array.min()} to {array.max()} do not fit"
            )
    return array.astype(dtype, copy=False)


def _described(known: Signature) -> str:
    return ", ".join(f"{tensor.name} {tensor.datatype.value}{list(tensor.shape)}" for tensor in known.inputs)


def _names(names: Any) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"
