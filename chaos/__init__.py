"""Faults, workloads and checkers that prove what Stockade promises, against a running cluster."""
