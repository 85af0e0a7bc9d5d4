"""A hostile web against the real crawler: real sockets, real addresses, and bounds that must hold."""
