"""scrapy-redis as a contestant: a spider that shares its queue through Redis and keeps its pages in PostgreSQL."""
