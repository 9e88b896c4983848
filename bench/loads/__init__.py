"""Load generators: Python ones by `python bench/loads`, and in `go/` those for clients in Go."""
