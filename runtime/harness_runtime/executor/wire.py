"""Messages of the control channel: one JSON array a datagram (a sequenced-packet socket keeps their bounds).

Parent to child:  ["config", {…}]  ["load", spec]  ["unload", digest]  ["job", generation, slot, digest, size, [placed …]]  ["stop"]
Child to parent:  ["ready", pid]  ["loaded", digest, device, null]  ["loaded", digest, "", reason]  ["unloaded", digest]
                  ["started", generation]  ["done", generation, execution_ns, [placed …], null or reason, out_of_memory]
                  ["withdrawn", generation]  ["failing", reason]

A batch goes by its generation, which no other batch of the parent ever has.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness_runtime.model import Emulation, ModelFormat, ModelSpec
from harness_runtime.tensors import Buckets, Datatype, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_BYTES_MAX = 128 << 10
"""Below the default send buffer of a Unix socket (208 KiB), so that a message is always taken whole."""


def encode(message: list[Any]) -> bytes:
    """One message.

    Raises:
        ValueError: longer than a message may be.
    """
    data = json.dumps(message, separators=(",", ":"), default=_plain).encode()
    if len(data) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message to the executor of {len(data)} bytes is over the limit of {MESSAGE_BYTES_MAX}")
    return data


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} does not go over the control channel")


def decode(data: bytes) -> list[Any]:
    """One message; raises ValueError when it is not one."""
    message = json.loads(data)
    if not isinstance(message, list) or not message:
        raise ValueError("not a message of the control channel")
    return message


def spec_to_json(spec: ModelSpec) -> dict[str, Any]:
    """A model's specification as JSON."""
    return dataclasses.asdict(spec)


def spec_from_json(data: Mapping[str, Any]) -> ModelSpec:
    """Inverse of :func:`spec_to_json`."""
    fields = dict(data)
    path, emulation = fields.pop("path"), fields.pop("emulation")
    inputs, outputs = fields.pop("inputs"), fields.pop("outputs")
    fields["execution_sizes"] = tuple(fields["execution_sizes"])
    fields["format"] = ModelFormat(fields["format"])
    return ModelSpec(
        **fields,
        path=None if path is None else Path(path),
        inputs=tuple(_tensor(each) for each in inputs),
        outputs=tuple(_tensor(each) for each in outputs),
        emulation=None if emulation is None else _emulation(emulation),
    )


def _tensor(data: Mapping[str, Any]) -> TensorSpec:
    buckets = data["buckets"]
    return TensorSpec(
        name=data["name"],
        datatype=Datatype(data["datatype"]),
        shape=tuple(data["shape"]),
        buckets=None if buckets is None else Buckets(buckets["dim"], tuple(buckets["sizes"]), buckets["pad_value"]),
        trim_dims=tuple(data["trim_dims"]),
    )


def _emulation(data: Mapping[str, Any]) -> Emulation:
    points = tuple((int(size), int(microseconds)) for size, microseconds in data["points"])
    return Emulation(data["setup_us"], data["compute_us_per_row"], points)
