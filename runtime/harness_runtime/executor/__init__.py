"""The executor: one child process per accelerator, fed through shared memory, so that the event loop is never blocked.

Parent side: ``process`` (the adapter of ``ports.Executor``) ← ``link`` (one child's life) ← ``watchdog``.
Both sides: ``memory`` (slots), ``layout`` (arrays in a slot), ``wire`` (what goes over the control channel).
Child side: ``child`` (the loop) → ``runners`` (one per model format) → ``checks`` (what a model returned, before it is used).

The child is started by exec, never by a bare fork: the parent may have threads of gRPC. Tensors travel in a memfd that both
map; the control channel carries descriptors as JSON. Nothing is pickled, nothing is left behind in a file system.
"""
