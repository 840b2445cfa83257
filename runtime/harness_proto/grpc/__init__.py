"""Generated stubs of the protos one folder up; ``python -m harness_proto.generate`` writes them."""
