"""Telemetry as tables: what brokers report every second, results as they went out, who wants what; and from them the
workload. Functions of DataFrames, the same over the newest seconds of a live fleet and over months of history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from trimtab.fleet.protocol import subjects
from trimtab.observe.histogram import PER_OCTAVE, SMALLEST_S
from trimtab.observe.report import BrokerReport, TopicReport
from trimtab.observe.schema import columns, spark_ddl, spark_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_COUNTS: Final = ("in_msgs", "in_bytes", "out_msgs", "out_bytes")
_WHEN: Final = ("at", "period_s", "broker")
# Tables, also as history keeps them. ``at`` is the end of the period, in seconds since 1970.
BROKERS: Final = spark_ddl(BrokerReport, (*_WHEN, "cpu", "memory_bytes", "connections", *_COUNTS, "own_bytes"))
RESULTS: Final = ("result_msgs", "result_bytes")
ADDED: Final = (*RESULTS, "own_bytes")  # columns that older history does not have
TOPICS: Final = (
    f"{spark_ddl(BrokerReport, _WHEN)}, topic STRING, {spark_ddl(TopicReport, (*_COUNTS, 'processed', 'busy_s'))}, "
    f"latency MAP<INT, LONG>, {spark_ddl(TopicReport, RESULTS)}"
)
LINKS: Final = f"{spark_ddl(BrokerReport, ('at', 'broker'))}, client STRING, topic STRING, role STRING"
TABLES: Final = {"brokers": BROKERS, "topics": TOPICS, "links": LINKS}

# Lists of clients are long and mostly the same as before, so they are read only where they are needed.
_TEXTS: Final = ("links", "published", "stock_subscriptions")
_REPORT: Final = spark_ddl(BrokerReport, as_text=_TEXTS)
_TYPES: Final = {name: spark_type(kind) for name, kind in columns(BrokerReport, _TEXTS).items()}
SUMMED: Final = ("in_msgs", "in_bytes", "processed", "busy_s", "result_msgs", "result_bytes")
HALVES: Final = ("early", "late")
CHANNEL: Final = "channel:"  # before CHANNEL:SUBSCRIPTION, in the place of a topic's name
SHARES: Final = (0.5, 0.9, 0.99)  # percentiles of latency that are told
CROWD: Final = 1_000  # subscribers of a topic; with more, to share it says nothing about two of them


def reports(messages: DataFrame) -> DataFrame:
    """What brokers said, message by message; what cannot be read is left out."""
    said = F.from_json(F.col("data").cast("string"), _REPORT)
    return messages.select(said.alias("said")).where("said.broker IS NOT NULL AND said.at IS NOT NULL").select("said.*")


def brokers(said: DataFrame) -> DataFrame:
    """``BROKERS``: one row a report, which may have come in parts."""
    longs = ("memory_bytes", "connections", *_COUNTS, "own_bytes")
    sums = [F.sum(F.coalesce(name, F.lit(0))).cast("long").alias(name) for name in longs]
    cpu = F.sum(F.coalesce("cpu", F.lit(0.0))).alias("cpu")
    return said.groupBy("at", "period_s", "broker").agg(cpu, *sums)


def topics(said: DataFrame) -> DataFrame:
    """``TOPICS``: one row for each topic of each report."""
    each = said.select("at", "period_s", "broker", F.explode("topics").alias("topic", "of"))
    numbers = {
        name: F.coalesce(F.col(f"of.{name}"), F.lit(0)).alias(name)
        for name in (*_COUNTS, "processed", "busy_s", *RESULTS)
    }
    pairs = F.expr("transform(coalesce(of.latency, array()), pair -> struct(CAST(pair[0] AS INT), pair[1]))")
    latency = F.map_from_entries(pairs).alias("latency")
    return each.select(
        "at", "period_s", "broker", "topic", *(numbers[name] for name in (*_COUNTS, "processed", "busy_s")), latency,
        *(numbers[name] for name in RESULTS),
    )  # fmt: skip


def links(said: DataFrame) -> DataFrame:
    """``LINKS``: who is there and has which topics open; a client without any has a row without a topic."""
    listed = said.where("links IS NOT NULL").select("at", "broker", _listed("links"))
    clients = listed.select("at", "broker", F.explode("links").alias("client", "open"))
    opened = clients.select("at", "broker", "client", F.explode_outer("open").alias("topic", "roles"))
    return opened.select("at", "broker", "client", "topic", F.explode_outer("roles").alias("role"))


def published(said: DataFrame) -> DataFrame:
    """``at``, ``broker``, ``client``, ``topic``, ``bytes``: published through the broker since its list before."""
    listed = said.where("published IS NOT NULL").select("at", "broker", _listed("published"))
    clients = listed.select("at", "broker", F.explode("published").alias("client", "sent"))
    return clients.select("at", "broker", "client", F.explode("sent").alias("topic", "bytes"))


def stock_subscriptions(said: DataFrame) -> DataFrame:
    """``at``, ``broker``, ``topic``, ``subscriptions``: those of plain NATS and MQTT clients."""
    listed = said.where("stock_subscriptions IS NOT NULL").select("at", "broker", _listed("stock_subscriptions"))
    return listed.select("at", "broker", F.explode("stock_subscriptions").alias("topic", "subscriptions"))


def _listed(name: str) -> Column:
    return F.from_json(name, _TYPES[name]).alias(name)


def results(messages: DataFrame) -> DataFrame:
    """``TOPICS`` of channel results, a second each: the hub stores them, whichever brokers they go to."""
    each = messages.select(
        F.ceil(F.col("time").cast("double")).cast("double").alias("at"), _channel(subjects.RESULT_PATTERN),
        F.length("data").cast("long").alias("size"),
    )  # fmt: skip
    zero = F.lit(0).cast("long")
    return each.groupBy("at", "topic").agg(F.count("*").alias("in_msgs"), F.sum("size").alias("in_bytes")).select(
        "at", F.lit(1.0).alias("period_s"), F.lit("").alias("broker"), "topic", "in_msgs", "in_bytes",
        zero.alias("out_msgs"), zero.alias("out_bytes"), zero.alias("processed"), F.lit(0.0).alias("busy_s"),
        F.expr("CAST(map() AS MAP<INT, LONG>)").alias("latency"), *(zero.alias(name) for name in RESULTS),
    )  # fmt: skip


def subscriptions(messages: DataFrame) -> DataFrame:
    """Client, topic and role of channel subscriptions, from the messages of the stream that holds them."""
    pattern = subjects.SUBSCRIBER_PATTERN
    client = F.regexp_extract("subject", pattern, 3).alias("client")
    return messages.select(client, _channel(pattern), F.lit("sub").alias("role"))


def _channel(pattern: str) -> Column:
    """In the place of a topic, from the parts of a subject."""
    channel, identity = (F.regexp_extract("subject", pattern, at) for at in (1, 2))
    return F.concat(F.lit(CHANNEL), channel, F.lit(":"), identity).alias("topic")


def current_links(rows: DataFrame, channels: DataFrame) -> DataFrame:
    """Client, topic, role and broker as of the newest list of every broker, with the channel subscriptions of clients
    that are there, which have no broker of their own; a client without links has a row without a topic.

    A client that is moving may be on two lists; the newer one counts.
    """
    newest = rows.groupBy("broker").agg(F.max("at").alias("at"))
    there = rows.join(newest, ["broker", "at"]).groupBy("client", "topic", "role")
    linked = there.agg(F.max_by("broker", "at").alias("broker"))
    here = linked.select("client").distinct()
    subscribed = channels.join(here, "client").select("client", "topic", "role").distinct()
    return linked.unionByName(subscribed, allowMissingColumns=True)


def publications(said: DataFrame, since: float) -> DataFrame:
    """``client``, ``topic``, ``broker``, ``bytes``: what every publisher has published since then. All plain NATS and
    MQTT clients of a broker are one publisher."""
    recent = published(said).where(F.col("at") > since)
    newest = F.max_by("broker", "at").alias("broker")
    return recent.groupBy("client", "topic").agg(newest, F.sum("bytes").alias("bytes"))


def current_stock(said: DataFrame) -> DataFrame:
    """``broker``, ``topic``, ``subscriptions``: those of plain NATS and MQTT clients in each broker's newest list."""
    rows = stock_subscriptions(said)
    newest = rows.groupBy("broker").agg(F.max("at").alias("at"))
    return rows.join(newest, ["broker", "at"]).select("broker", "topic", "subscriptions")


def listed_channels(rows: DataFrame, channels: DataFrame) -> DataFrame:
    """``LINKS`` of channel subscriptions of whoever is in the newest list of each broker, as history keeps them."""
    newest = rows.groupBy("broker").agg(F.max("at").alias("at"))
    there = rows.join(newest, ["broker", "at"]).select("at", "broker", "client").distinct()
    return there.join(channels, "client").select("at", "broker", "client", "topic", "role")


def rates(rows: DataFrame, since: float, until: float, seconds: float | None = None) -> DataFrame:
    """Messages/s, bytes a message and CPU time a message of every topic, all brokers together: the mean over a time, of
    which so many ``seconds`` were measured."""
    span = max(until - since if seconds is None else seconds, 1e-9)
    within = rows.where((F.col("at") > since) & (F.col("at") <= until))
    return within.groupBy("topic").agg(*(F.sum(name).alias(name) for name in SUMMED)).select(
        "topic", (F.col("in_msgs") / span).alias("rate"),
        F.expr("coalesce(try_divide(in_bytes, in_msgs), 0.0D)").alias("size_bytes"),
        F.expr("coalesce(try_divide(1000 * busy_s, processed), 0.0D)").alias("processing_ms"),
        F.when(F.col("processed") > 0, F.col("result_msgs") / span).alias("out_rate"),
        F.expr("coalesce(try_divide(result_bytes, result_msgs), 0.0D)").alias("out_bytes"),
        (F.col("processed") > 0).cast("double").alias("relayed"),
    )  # fmt: skip


def halves(rows: DataFrame, middle: float) -> DataFrame:
    """``topic``, and sums of ``SUMMED`` over all that came up to ``middle``, and after it."""
    late = F.col("at") > F.lit(middle)
    parts = [
        F.sum(F.when(late if half == HALVES[1] else ~late, F.col(name)).otherwise(0)).cast("double").alias(
            f"{name}_{half}"
        )
        for name in SUMMED
        for half in HALVES
    ]  # fmt: skip
    return rows.groupBy("topic").agg(*parts)


def marks(said: DataFrame) -> DataFrame:
    """``broker``, ``at`` and a number that another list of links would hardly have; a list may have come in parts."""
    lists = said.where("links IS NOT NULL").selectExpr("broker", "at", "xxhash64(links) % 1000000007 AS mark")
    return lists.groupBy("broker", "at").agg(F.sum("mark").alias("mark"))


def percentiles(rows: DataFrame, by: Sequence[str], shares: Sequence[float]) -> DataFrame:
    """Milliseconds from publication to delivery, ``p50_ms`` and so on, of the histograms of all rows merged."""
    buckets = rows.select(*by, F.explode("latency").alias("bucket", "hits")).groupBy(*by, "bucket")
    counted = buckets.agg(F.sum("hits").alias("hits"))
    whole, upto = Window.partitionBy(*by), Window.partitionBy(*by).orderBy("bucket")
    summed = counted.select("*", F.sum("hits").over(whole).alias("of"), F.sum("hits").over(upto).alias("upto"))
    middle = F.pow(F.lit(2.0), (F.col("bucket") + 0.5) / PER_OCTAVE) * (1000.0 * SMALLEST_S)
    reached = [
        F.min(F.when(F.col("upto") >= F.ceil(F.col("of") * share - 1e-9), middle)).alias(f"p{100 * share:g}_ms")
        for share in shares
    ]
    return summed.groupBy(*by).agg(F.max("of").alias("deliveries"), *reached)


def usage(rows: DataFrame, processed: DataFrame, since: float, until: float) -> DataFrame:
    """What every broker carries and uses, from ``BROKERS`` and ``TOPICS``: bytes/s and messages/s in and out, cores in
    use by its servers and by processors, bytes of memory."""
    span = max(until - since, 1e-9)
    within = (F.col("at") > since) & (F.col("at") <= until)
    own = rows.where(within).groupBy("broker").agg(
        (F.sum(F.col("in_bytes") + F.col("out_bytes")) / span).alias("data"),
        (F.sum(F.col("in_msgs") + F.col("out_msgs")) / span).alias("messages"), F.avg("cpu").alias("cores"),
        F.avg("memory_bytes").alias("memory"), (F.sum("own_bytes") / span).alias("own"),
    )  # fmt: skip
    busy = processed.where(within).groupBy("broker").agg((F.sum("busy_s") / span).alias("processing"))
    return own.join(busy, "broker", "left").fillna(0.0, ["cores", "memory", "processing", "own"])


def _begin(every_s: float) -> Column:
    return (F.floor(F.col("at") / every_s) * every_s).cast("double").alias("begin")


def topic_windows(rows: DataFrame, every_s: float, by: Sequence[str] = ("topic",)) -> DataFrame:
    """Of ``TOPICS``, a row for every so many seconds and each topic in which there was anything: what was published and
    delivered, CPU time a message, percentiles of latency."""
    timed = rows.select(_begin(every_s), "*")
    sums = [(F.sum(name) / every_s).alias(f"{name}_per_s") for name in _COUNTS]
    busy = F.expr("coalesce(try_divide(1000 * sum(busy_s), sum(processed)), 0.0D)").alias("processing_ms")
    late = percentiles(timed, ["begin", *by], SHARES)
    return timed.groupBy("begin", *by).agg(*sums, busy).join(late, ["begin", *by], "left")


def broker_windows(rows: DataFrame, of_topics: DataFrame, every_s: float) -> DataFrame:
    """Of ``BROKERS`` and ``TOPICS``: what went in and out, cores, memory and connections, percentiles of latency."""
    timed = rows.select(_begin(every_s), "*")
    sums = [(F.sum(name) / every_s).alias(f"{name}_per_s") for name in _COUNTS]
    used = [F.avg("cpu").alias("cores"), F.max("memory_bytes").alias("memory_bytes"),
            F.max("connections").alias("connections")]  # fmt: skip
    late = percentiles(of_topics.select(_begin(every_s), "*"), ["begin", "broker"], SHARES)
    return timed.groupBy("begin", "broker").agg(*sums, *used).join(late, ["begin", "broker"], "left")


def client_windows(rows: DataFrame, of_topics: DataFrame, every_s: float) -> DataFrame:
    """Of ``LINKS`` and ``TOPICS``: how many subscriptions a client had, and what they brought it. Who had a topic for a
    part of that time counts as if for all of it."""
    wants = rows.where("role = 'sub'").select(_begin(every_s), "client", "topic").distinct()
    rate = of_topics.select(_begin(every_s), "*").groupBy("begin", "topic").agg(
        *((F.sum(name) / every_s).alias(name) for name in ("in_msgs", "in_bytes"))
    )  # fmt: skip
    return wants.join(rate, ["begin", "topic"], "left").groupBy("begin", "client").agg(
        F.count("*").alias("subscriptions"),
        *(F.coalesce(F.sum(name), F.lit(0.0)).alias(f"{name}_per_s") for name in ("in_msgs", "in_bytes")),
    )  # fmt: skip


def shared(linked: DataFrame, most: int = CROWD) -> DataFrame:
    """How many subscriptions two clients have in common: ``client``, ``other``, ``topics``."""
    wants = linked.where("role = 'sub' AND topic IS NOT NULL").select("topic", "client").distinct()
    few = wants.groupBy("topic").count().where(F.col("count").between(2, most)).select("topic")
    kept = wants.join(few, "topic")
    others = kept.select("topic", F.col("client").alias("other"))
    return (
        kept.join(others, "topic").where("client < other").groupBy("client", "other").agg(F.count("*").alias("topics"))
    )


def workload(known: DataFrame, linked: DataFrame, there: DataFrame) -> dict[str, DataFrame]:
    """The four tables: topics that anybody has to do with, clients, brokers, links. ``there`` has a ``broker``."""
    own = linked.where("topic IS NOT NULL")
    names = own.select("topic").union(known.select("topic")).distinct()
    numbers = ["rate", "size_bytes", "processing_ms", "out_bytes", "relayed"]
    filled = names.join(known, "topic", "left").fillna(0.0, numbers)
    return {
        "topics": filled.select(F.col("topic").alias("id"), *numbers[:3], "out_rate", *numbers[3:]),
        "clients": linked.select(F.col("client").alias("id")).distinct(),
        "brokers": there.select(F.col("broker").alias("id")).distinct(),
        "links": own.select("topic", "client", "role").distinct(),
    }
