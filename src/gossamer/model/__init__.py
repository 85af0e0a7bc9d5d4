"""The values that travel: plain, frozen, and the same on one machine and on many."""
