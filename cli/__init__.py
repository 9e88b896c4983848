"""The `stockade` command; composes everything."""
