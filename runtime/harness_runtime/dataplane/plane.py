"""The data plane: one call of any edge, from its tensors to its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_core.outcome import Outcome

from harness_runtime.dataplane import parameters
from harness_runtime.dataplane.answer import respond
from harness_runtime.dataplane.deadlines import target_and_limit
from harness_runtime.dataplane.signature import Signature
from harness_runtime.errors import RequestEnded, internal_fault, invalid
from harness_runtime.lanes import VARIABLE, execution_size
from harness_runtime.model import ModelState
from harness_runtime.ports import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness_runtime.model import ModelEntry, ModelSpec
    from harness_runtime.ports import BatcherPort, InferRequest, InferResponse
    from harness_runtime.registry import Registry
    from harness_runtime.tensors import TensorSpec

MAX_HOLD_NS = 120 * 1_000_000_000
DRAIN_RETRY_MS = 1000
EXTENSIONS = ("model_configuration", "binary_tensor_data", "parameters")


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """One tensor as clients see it: with a batched model the shape has a leading -1 for the rows."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Answer to ModelMetadata; ``versions`` from the highest down."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]
    properties: dict[str, str]


@dataclass(frozen=True, slots=True)
class ServerMetadata:
    """Answer to ServerMetadata."""

    name: str
    version: str
    extensions: tuple[str, ...]


class DataPlane:
    """Serves every edge of this process.

    ``clock`` gives integer nanoseconds, monotonic. ``max_hold_ns`` is the limit of a request that has neither a ``timeout``
    nor a transport deadline. ``healthy`` says whether the loops behind the data plane are alive: a dead one must not look
    ready (scenario B004). ``on_refused(model, outcome, reason)`` hears of every request that ended before the batcher saw
    it, the others' ends being the batcher's to count; ``model`` is empty when there is no such model. ``on_unsent(model, reason)``
    hears of every answer that the batcher has counted and no edge could send. ``slot_bytes`` is what the executor takes as inputs of one
    batch.
    """

    def __init__(
        self,
        registry: Registry,
        batcher: BatcherPort,
        clock: Callable[[], int],
        *,
        max_hold_ns: int = MAX_HOLD_NS,
        name: str = "harness-runtime",
        version: str = "",
        healthy: Callable[[], bool] = lambda: True,
        on_refused: Callable[[str, Outcome, str], None] = lambda _model, _outcome, _reason: None,
        on_unsent: Callable[[str, str], None] = lambda _model, _reason: None,
        slot_bytes: int = 1 << 30,
    ) -> None:
        self.clock = clock
        self._registry = registry
        self._batcher = batcher
        self._max_hold_ns = max_hold_ns
        self._healthy = healthy
        self._on_refused = on_refused
        self._on_unsent = on_unsent
        self._slot_bytes = slot_bytes
        self._server = ServerMetadata(name, version, EXTENSIONS)
        self._signatures: dict[tuple[str, str], Signature] = {}
        self._draining = False
        self._listeners: list[Callable[[], None]] = []
        registry.subscribe(self._changed)

    async def infer(self, request: InferRequest) -> InferResponse:
        """Check, queue, run, answer. Cancelling the awaiting task withdraws the request.

        Raises:
            RequestEnded: every end but an answer.
        """
        try:
            work, wanted, custom = self._prepare(request)
        except RequestEnded as end:
            self.refuse(request.model, end)
            raise
        except Exception:
            # The edge logs it and tells the caller.
            self.refuse(request.model, internal_fault())
            raise
        result = await self._batcher.infer(work)
        return respond(request, work, wanted, custom, result)

    def refuse(self, model: str, end: RequestEnded) -> None:
        """Account for a request that an edge refused itself."""
        self._on_refused(model if self._registry.versions(model) else "", end.outcome, end.reason)

    def unsent(self, model: str, reason: str) -> None:
        """Account for an answer that was counted as such and that the edge cannot send."""
        self._on_unsent(model, reason)

    def admit(self, model: str, version: str) -> ModelEntry:
        """The entry that would answer now: what an edge asks before it spends work on a payload.

        Raises:
            RequestEnded: NOT_FOUND; UNAVAILABLE while draining or not ready.
        """
        if self._draining:
            message = "the server is draining and takes no new requests"
            raise RequestEnded(Outcome.UNAVAILABLE, "draining", message, retry_after_ms=DRAIN_RETRY_MS)
        return self._registry.find(model, version)

    def drain(self) -> None:
        """Refuse new requests and report not ready; what is queued goes on."""
        self._draining = True
        self._changed()

    def server_ready(self) -> bool:
        """Every model is ready, the loops live, and the server is not draining."""
        return not self._draining and self._healthy() and self._registry.ready()

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether a request for this model would be taken. An unknown model is not ready, which is no error."""
        try:
            entry = self._registry.lookup(name, version)
        except RequestEnded:
            return False
        return not self._draining and self._healthy() and entry.state is ModelState.READY

    def model_names(self) -> list[str]:
        """Names of all configured models."""
        return list(dict.fromkeys(entry.spec.name for entry in self._registry.entries()))

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever readiness may have changed."""
        self._listeners.append(listener)

    def server(self) -> ServerMetadata:
        """Name, version and protocol extensions of this server."""
        return self._server

    def metadata(self, name: str, version: str = "") -> ModelMetadata:
        """A model's signature, ready or not.

        Raises:
            RequestEnded: NOT_FOUND.
        """
        spec = self._registry.lookup(name, version).spec
        return ModelMetadata(
            name=spec.name,
            versions=tuple(self._registry.versions(name)),
            platform=f"harness_{spec.format.value.lower()}",
            inputs=tuple(_tensor(tensor, spec) for tensor in spec.inputs),
            outputs=tuple(_tensor(tensor, spec) for tensor in spec.outputs),
            properties={"digest": spec.digest, "format": spec.format.value},
        )

    def config(self, name: str, version: str = "") -> ModelEntry:
        """A model's effective settings, ready or not.

        Raises:
            RequestEnded: NOT_FOUND.
        """
        return self._registry.lookup(name, version)

    def _prepare(self, request: InferRequest) -> tuple[Work, tuple[TensorSpec, ...], dict[str, parameters.Value]]:
        """All checks of a request: its work, the outputs it wants, and the parameters to send back."""
        entry = self.admit(request.model, request.version)
        signature = self._signature(entry.spec)
        wishes = parameters.read(request.parameters, entry.spec)
        tenant = parameters.check_tenant(request.tenant)
        checked = signature.check(request.inputs)
        wanted = signature.outputs(request.outputs)
        if checked.bytes > entry.limits.max_batch_bytes:
            raise invalid(
                "too_many_bytes",
                f"the inputs hold {checked.bytes} bytes, a batch {entry.limits.max_batch_bytes} at most",
            )
        if checked.executed_bytes > self._slot_bytes:
            rows = execution_size(entry.spec.execution_sizes, checked.rows)
            raise invalid(
                "too_many_bytes",
                f"the inputs take {checked.executed_bytes} bytes when they are run as {rows} rows, "
                f"the executor takes {self._slot_bytes} at most",
            )
        target_ns, limit_ns = target_and_limit(
            entry.spec, wishes.timeout_us, request.arrival_ns, request.deadline_ns, self._max_hold_ns
        )
        work = Work(
            spec=entry.spec,
            bucket=checked.bucket,
            rows=checked.rows,
            bytes=checked.bytes,
            inputs=checked.inputs,
            padded=checked.padded,
            arrival_ns=request.arrival_ns,
            target_ns=target_ns,
            limit_ns=limit_ns,
            weight=wishes.weight,
            priority=wishes.priority,
            tenant=tenant,
        )
        return work, wanted, wishes.custom

    def _signature(self, spec: ModelSpec) -> Signature:
        key = (spec.name, spec.version)
        signature = self._signatures.get(key)
        if signature is None or signature.spec is not spec:
            signature = self._signatures[key] = Signature(spec)
        return signature

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def _tensor(tensor: TensorSpec, spec: ModelSpec) -> TensorMetadata:
    shape = (VARIABLE, *tensor.shape) if spec.max_batch_size > 0 else tensor.shape
    return TensorMetadata(tensor.name, tensor.datatype.value, shape)
