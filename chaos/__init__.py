"""Faults on purpose, histories of what happened, and the checkers that judge them."""
