"""The version of Stockade, in one place."""

VERSION = "0.1.0"
