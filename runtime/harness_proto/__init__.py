"""The wire: ``*.proto``, written here, and the stubs made from them in ``harness_proto.grpc``.

Reached only from ``*.grpc`` sub-packages, tests and clients: wire types stop at the edge. After a change of a proto run
``python -m harness_proto.generate`` and commit what it wrote.
"""
