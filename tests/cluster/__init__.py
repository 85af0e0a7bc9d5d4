"""A shared crawl on a real PostgreSQL and a real Redis must survive whatever is done to it."""
