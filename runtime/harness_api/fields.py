"""Kinds of values that several types share: names, quantities, counts. Each pattern has its sentence for people."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from harness_api.base import shorten

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
TIB: Final = 2**40

LABEL: Final = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
LABEL_VALUE: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
QUALIFIED: Final = r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
SHA256: Final = r"^[0-9a-f]{64}$"
TENSOR: Final = r"^[!-~]+$"
HOST_PORT: Final = r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?):[0-9]{1,5}$"
TIMESTAMP: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
QUANTITY: Final = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E|[eE][+-]?[0-9]{1,2})?$"

PATTERN_SENTENCES: Final[dict[str, str]] = {
    LABEL: "must consist of lower-case letters, digits and '-', and start and end with a letter or digit (RFC 1123 label)",
    LABEL_VALUE: "must consist of letters, digits, '.', '_' and '-', and start and end with a letter or digit",
    QUALIFIED: "must be a qualified name such as nvidia.com/gpu",
    SHA256: "must be a sha256 of 64 lower-case hexadecimal digits",
    TENSOR: "must consist of printable ASCII characters without spaces",
    HOST_PORT: "must be host:port, such as 127.0.0.1:8001",
    TIMESTAMP: "must be a time such as 2026-01-31T12:00:00Z",
    QUANTITY: "must be a Kubernetes quantity of bytes such as 512Mi, 2Gi or 2G",
}

LabelName = Annotated[str, Field(min_length=1, max_length=63, pattern=LABEL)]
"""RFC 1123 label: names of services, groups, namespaces."""
ModelName = Annotated[str, Field(min_length=1, max_length=63, pattern=LABEL_VALUE)]
"""A model's name or version: also a folder's name, a part of a gRPC name and a label value, hence no slash and no leading dot."""
QualifiedName = Annotated[str, Field(min_length=1, max_length=253, pattern=QUALIFIED)]
TensorName = Annotated[str, Field(min_length=1, max_length=255, pattern=TENSOR)]
Sha256 = Annotated[str, Field(max_length=64, pattern=SHA256)]
Timestamp = Annotated[str, Field(max_length=40, pattern=TIMESTAMP)]
Port = Annotated[int, Field(ge=1, le=65535)]
Dimension = Annotated[int, Field(ge=0, le=7)]
"""Index into a shape, not counting the batch dimension."""
Replicas = Annotated[int, Field(ge=0, le=1000)]
FreeObject = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""An object that is handed on to Kubernetes, who checks it."""

_FACTOR: Final[dict[str, Fraction]] = {
    "": Fraction(1),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}


def quantity_bytes(text: str) -> int:
    """The number of bytes that a Kubernetes quantity (``2Gi``, ``1.5G``, ``1e9``) stands for, rounded up.

    Raises:
        ValueError: not a quantity, or out of the range 1 to 2**63 - 1.
    """
    match = re.fullmatch(QUANTITY, text)
    if match is None:
        raise ValueError(f"'{shorten(text)}' {PATTERN_SENTENCES[QUANTITY]}")
    number, unit = match[1], match[3] or ""
    factor = _FACTOR[unit] if unit in _FACTOR else Fraction(10) ** int(unit[1:])
    value = ceil(Fraction(number) * factor)
    if not 1 <= value <= INT64_MAX:
        raise ValueError(f"'{shorten(text)}' is out of range: 1 byte to {INT64_MAX} bytes")
    return value


def _check_quantity(text: str) -> str:
    try:
        quantity_bytes(text)
    except ValueError as error:
        raise PydanticCustomError("quantity", "{sentence}", {"sentence": str(error)}) from None
    return text


Quantity = Annotated[str, Field(min_length=1, max_length=32), AfterValidator(_check_quantity)]
