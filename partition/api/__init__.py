"""The values that the HTTP API's answers are made of, and its requests where both sides build them: defined once.

A node fills these structs and encodes them, a client decodes them, and a test compares each with its schema in
docs/openapi.yaml. Fields that a reader does not know are ignored, so a client understands a newer node. What a request
may contain (ranges, no unknown field) is in http_api/codec/schemas.py.

Pure values: no IO, no clock, and no import from any other part of the house.

May import: partition.
"""
