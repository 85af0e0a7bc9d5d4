"""Where URLs live: the ledger that remembers them, the scheduler that times them, the frontier made of both."""
