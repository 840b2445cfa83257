"""Edges: what speaks a wire protocol to clients and hands plain requests to the data plane. One folder per protocol."""
