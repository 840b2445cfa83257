"""Workloads (arrival processes, traces) for simulations and load tests. Never reaches the wire."""
