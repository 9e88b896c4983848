"""The catalogue of faults: one file for each kind, all of them listed in catalogue.py."""
