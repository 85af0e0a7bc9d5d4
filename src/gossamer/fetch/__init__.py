"""From a URL to a response: names resolved and checked, bytes exchanged, content codings removed."""
