"""Pure decisions: what may be fetched, when, and with which cookies. Time comes in as an argument."""
