"""The spider of `bench/contestants/scrapy_spider.py`, with the scheduler and the duplicate filter of scrapy-redis."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from scrapy.crawler import CrawlerProcess
from scrapy_redis.spiders import RedisSpider

from bench.contestants.scrapy_spider import Spider as PlainSpider

#: A spider with nothing to do for so long has finished. It cannot know: another may still bring links.
IDLE_SECONDS = 6


class Spider(RedisSpider):  # type: ignore[misc]
    name = "bench"
    custom_settings = PlainSpider.custom_settings | {
        "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        # Else the spider that ends first clears what the other still needs.
        "SCHEDULER_PERSIST": True,
        "MAX_IDLE_TIME_BEFORE_CLOSE": IDLE_SECONDS,
        "ITEM_PIPELINES": {"bench.scrapy_redis_spider.pipeline.PostgresPipeline": 300},
    }
    parse = PlainSpider.parse

    async def start(self) -> AsyncIterator[Any]:
        # Scrapy no longer calls `start_requests`, which scrapy-redis still defines.
        for request in self.start_requests():
            yield request


if __name__ == "__main__":
    redis, postgres, seeds, hosts = sys.argv[1:]
    Spider.redis_batch_size = int(seeds)
    process = CrawlerProcess({"LOG_LEVEL": "ERROR", "REDIS_URL": redis, "POSTGRES_DSN": postgres})
    process.crawl(Spider, allowed_domains=hosts.split(","))
    process.start()
