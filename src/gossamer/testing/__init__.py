"""What tests and the demo need to run without the Internet; nothing here is used by a crawl of the real web."""
