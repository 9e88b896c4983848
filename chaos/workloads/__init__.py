"""What clients do while a cluster is broken: one file for each workload, all listed in catalogue.py."""
