"""The version, apart from the package itself so that every layer may know it."""

VERSION = "0.1.0"
