"""Telemetry as tables: brokers' reports, channel results, subscriptions, and the workload computed from them.
The functions take DataFrames: the newest seconds of a live fleet, or months of history.
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

OWN: Final = ("own_bytes", "client_bytes")
_COUNTS: Final = ("in_msgs", "in_bytes", "out_msgs", "out_bytes")
_PERIOD: Final = ("at", "period_s", "broker")
# Tables, in memory and in history. ``at`` is the end of the period, in seconds since 1970.
BROKERS: Final = spark_ddl(BrokerReport, (*_PERIOD, "cpu", "memory_bytes", "connections", *_COUNTS, *OWN))
RESULTS: Final = ("result_msgs", "result_bytes")
ADDED: Final = (*RESULTS, *OWN)  # columns that older history does not have
TOPICS: Final = (
    f"{spark_ddl(BrokerReport, _PERIOD)}, topic STRING, {spark_ddl(TopicReport, (*_COUNTS, 'processed', 'busy_s'))}, "
    f"latency MAP<INT, LONG>, {spark_ddl(TopicReport, RESULTS)}"
)
LINKS: Final = f"{spark_ddl(BrokerReport, ('at', 'broker'))}, client STRING, topic STRING, role STRING"
TABLES: Final = {"brokers": BROKERS, "topics": TOPICS, "links": LINKS}

# Lists of clients are long and mostly the same as before, so they are read only where they are needed.
_TEXTS: Final = ("links", "published", "stock_subscriptions", "positions", "summaries")
_REPORT: Final = spark_ddl(BrokerReport, as_text=_TEXTS)
_TYPES: Final = {name: spark_type(kind) for name, kind in columns(BrokerReport, _TEXTS).items()}
SUMMED: Final = ("in_msgs", "in_bytes", "processed", "busy_s", "result_msgs", "result_bytes")
HALVES: Final = ("early", "late")
CHANNEL: Final = "channel:"  # prefix of CHANNEL:SUBSCRIPTION, which takes the place of a topic's name
SHARES: Final = (0.5, 0.9, 0.99)  # percentiles of latency in the tables
CROWD: Final = 1_000  # most subscribers of a topic that counts as a common interest of two clients


def reports(messages: DataFrame) -> DataFrame:
    """Reports of brokers, a row per message. Messages that are not reports are left out."""
    report = F.from_json(F.col("data").cast("string"), _REPORT)
    rows = messages.select(report.alias("report"))
    return rows.where("report.broker IS NOT NULL AND report.at IS NOT NULL").select("report.*")


def brokers(reports: DataFrame) -> DataFrame:
    """``BROKERS``: one row per report. The parts of a report that came in several messages are added up."""
    longs = ("memory_bytes", "connections", *_COUNTS, *OWN)
    sums = [F.sum(F.coalesce(name, F.lit(0))).cast("long").alias(name) for name in longs]
    cpu = F.sum(F.coalesce("cpu", F.lit(0.0))).alias("cpu")
    return reports.groupBy("at", "period_s", "broker").agg(cpu, *sums)


def topics(reports: DataFrame) -> DataFrame:
    """``TOPICS``: a row per topic and report."""
    rows = reports.select("at", "period_s", "broker", F.explode("topics").alias("topic", "report"))
    numbers = {
        name: F.coalesce(F.col(f"report.{name}"), F.lit(0)).alias(name)
        for name in (*_COUNTS, "processed", "busy_s", *RESULTS)
    }
    pairs = F.expr("transform(coalesce(report.latency, array()), pair -> struct(CAST(pair[0] AS INT), pair[1]))")
    latency = F.map_from_entries(pairs).alias("latency")
    return rows.select(
        "at", "period_s", "broker", "topic", *(numbers[name] for name in (*_COUNTS, "processed", "busy_s")), latency,
        *(numbers[name] for name in RESULTS),
    )  # fmt: skip


def links(reports: DataFrame) -> DataFrame:
    """``LINKS``: connected clients and their topics. A client without topics has a row without a topic."""
    lists = reports.where("links IS NOT NULL").select("at", "broker", _parsed("links"))
    clients = lists.select("at", "broker", F.explode("links").alias("client", "open"))
    opened = clients.select("at", "broker", "client", F.explode_outer("open").alias("topic", "roles"))
    return opened.select("at", "broker", "client", "topic", F.explode_outer("roles").alias("role"))


def published(reports: DataFrame) -> DataFrame:
    """``at``, ``broker``, ``client``, ``topic``, ``bytes``: publications through a broker since its previous list."""
    lists = reports.where("published IS NOT NULL").select("at", "broker", _parsed("published"))
    clients = lists.select("at", "broker", F.explode("published").alias("client", "sent"))
    return clients.select("at", "broker", "client", F.explode("sent").alias("topic", "bytes"))


def stock_subscriptions(reports: DataFrame) -> DataFrame:
    """``at``, ``broker``, ``topic``, ``subscriptions``: subscriptions of plain NATS and MQTT clients."""
    lists = reports.where("stock_subscriptions IS NOT NULL").select("at", "broker", _parsed("stock_subscriptions"))
    return lists.select("at", "broker", F.explode("stock_subscriptions").alias("topic", "subscriptions"))


def positions(reports: DataFrame) -> DataFrame:
    """``client``, ``gateway``, ``access_ms``, ``rtts``: the newest position of every client in the network."""
    lists = reports.where("positions IS NOT NULL").select("at", _parsed("positions"))
    rows = lists.select("at", F.explode("positions").alias("client", "position"))
    newest = rows.groupBy("client").agg(F.max_by("position", "at").alias("position"))
    return newest.select("client", "position.gateway", "position.access_ms", "position.rtts")


def _parsed(name: str) -> Column:
    return F.from_json(name, _TYPES[name]).alias(name)


def results(messages: DataFrame) -> DataFrame:
    """``TOPICS`` of channel results, a row per second. They have no broker, since the hub stores them."""
    rows = messages.select(
        F.ceil(F.col("time").cast("double")).cast("double").alias("at"), _channel(subjects.RESULT_PATTERN),
        F.length("data").cast("long").alias("size"),
    )  # fmt: skip
    zero = F.lit(0).cast("long")
    return rows.groupBy("at", "topic").agg(F.count("*").alias("in_msgs"), F.sum("size").alias("in_bytes")).select(
        "at", F.lit(1.0).alias("period_s"), F.lit("").alias("broker"), "topic", "in_msgs", "in_bytes",
        zero.alias("out_msgs"), zero.alias("out_bytes"), zero.alias("processed"), F.lit(0.0).alias("busy_s"),
        F.expr("CAST(map() AS MAP<INT, LONG>)").alias("latency"), *(zero.alias(name) for name in RESULTS),
    )  # fmt: skip


def subscriptions(messages: DataFrame) -> DataFrame:
    """Client, topic and role of channel subscriptions, from the messages of their stream."""
    pattern = subjects.SUBSCRIBER_PATTERN
    client = F.regexp_extract("subject", pattern, 3).alias("client")
    return messages.select(client, _channel(pattern), F.lit("sub").alias("role"))


def _channel(pattern: str) -> Column:
    """The name that takes the place of a topic's, from the parts of a subject."""
    channel, identity = (F.regexp_extract("subject", pattern, group) for group in (1, 2))
    return F.concat(F.lit(CHANNEL), channel, F.lit(":"), identity).alias("topic")


def current_links(rows: DataFrame, channels: DataFrame) -> DataFrame:
    """Client, topic, role and broker, from the newest list of every broker. Channel subscriptions of these clients are
    added, without a broker. A client without links has a row without a topic.

    A client that is moving may be on two lists; the newer list counts.
    """
    newest = rows.groupBy("broker").agg(F.max("at").alias("at"))
    present = rows.join(newest, ["broker", "at"]).groupBy("client", "topic", "role")
    linked = present.agg(F.max_by("broker", "at").alias("broker"))
    clients = linked.select("client").distinct()
    subscribed = channels.join(clients, "client").select("client", "topic", "role").distinct()
    return linked.unionByName(subscribed, allowMissingColumns=True)


def publications(reports: DataFrame, since: float) -> DataFrame:
    """``client``, ``topic``, ``broker``, ``bytes``: publications of every publisher after ``since``. All plain NATS and
    MQTT clients of a broker are one publisher."""
    recent = published(reports).where(F.col("at") > since)
    newest = F.max_by("broker", "at").alias("broker")
    return recent.groupBy("client", "topic").agg(newest, F.sum("bytes").alias("bytes"))


def current_stock(reports: DataFrame) -> DataFrame:
    """``broker``, ``topic``, ``subscriptions``: plain NATS and MQTT subscriptions in each broker's newest list."""
    rows = stock_subscriptions(reports)
    newest = rows.groupBy("broker").agg(F.max("at").alias("at"))
    return rows.join(newest, ["broker", "at"]).select("broker", "topic", "subscriptions")


def listed_channels(rows: DataFrame, channels: DataFrame) -> DataFrame:
    """``LINKS`` of channel subscriptions, of the clients in the newest list of each broker, as stored in history."""
    newest = rows.groupBy("broker").agg(F.max("at").alias("at"))
    present = rows.join(newest, ["broker", "at"]).select("at", "broker", "client").distinct()
    return present.join(channels, "client").select("at", "broker", "client", "topic", "role")


def rates(rows: DataFrame, since: float, until: float, seconds: float | None = None) -> DataFrame:
    """Messages/s, bytes per message and CPU time per message of every topic, over all brokers. The rates are means over
    the measured ``seconds``, by default the whole time span."""
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
    """``topic``, and sums of ``SUMMED`` over the rows up to ``middle``, and over the rows after it."""
    late = F.col("at") > F.lit(middle)
    parts = [
        F.sum(F.when(late if half == HALVES[1] else ~late, F.col(name)).otherwise(0)).cast("double").alias(
            f"{name}_{half}"
        )
        for name in SUMMED
        for half in HALVES
    ]  # fmt: skip
    return rows.groupBy("topic").agg(*parts)


def marks(reports: DataFrame) -> DataFrame:
    """``broker``, ``at`` and a fingerprint of the list of links. The fingerprints of a list's parts are added up."""
    lists = reports.where("links IS NOT NULL").selectExpr("broker", "at", "xxhash64(links) % 1000000007 AS mark")
    return lists.groupBy("broker", "at").agg(F.sum("mark").alias("mark"))


def latencies(rows: DataFrame) -> DataFrame:
    """``topic``, ``bucket``, ``hits``: the merged histogram of every topic's delivery times."""
    exploded = rows.select("topic", F.explode("latency").alias("bucket", "hits"))
    return exploded.groupBy("topic", "bucket").agg(F.sum("hits").alias("hits"))


def percentiles(rows: DataFrame, by: Sequence[str], shares: Sequence[float]) -> DataFrame:
    """Percentiles of latency in milliseconds (``p50_ms`` and so on), from the merged histograms."""
    buckets = rows.select(*by, F.explode("latency").alias("bucket", "hits")).groupBy(*by, "bucket")
    counted = buckets.agg(F.sum("hits").alias("hits"))
    all_buckets, upto = Window.partitionBy(*by), Window.partitionBy(*by).orderBy("bucket")
    summed = counted.select("*", F.sum("hits").over(all_buckets).alias("total"), F.sum("hits").over(upto).alias("upto"))
    middle = F.pow(F.lit(2.0), (F.col("bucket") + 0.5) / PER_OCTAVE) * (1000.0 * SMALLEST_S)
    reached = [
        F.min(F.when(F.col("upto") >= F.ceil(F.col("total") * share - 1e-9), middle)).alias(f"p{100 * share:g}_ms")
        for share in shares
    ]
    return summed.groupBy(*by).agg(F.max("total").alias("deliveries"), *reached)


def usage(rows: DataFrame, processed: DataFrame, since: float, until: float) -> DataFrame:
    """Resource use of every broker, from ``BROKERS`` and ``TOPICS``: bytes/s and messages/s in and out, cores in use by
    its servers and by processors, bytes of memory. Means over the time that the reports cover, which differs from the
    time asked for by a report more or less."""
    within = (F.col("at") > since) & (F.col("at") <= until)
    covered = F.greatest(F.sum("period_s"), F.lit(1e-9))
    own = rows.where(within).groupBy("broker").agg(
        (F.sum(F.col("in_bytes") + F.col("out_bytes")) / covered).alias("data"),
        (F.sum(F.col("in_msgs") + F.col("out_msgs")) / covered).alias("messages"), F.avg("cpu").alias("cores"),
        F.avg("memory_bytes").alias("memory"), (F.sum("own_bytes") / covered).alias("own"),
        (F.sum("client_bytes") / covered).alias("clients"), covered.alias("covered"),
    )  # fmt: skip
    busy = processed.where(within).groupBy("broker").agg(F.sum("busy_s").alias("busy_s"))
    joined = own.join(busy, "broker", "left").withColumn("processing", F.col("busy_s") / F.col("covered"))
    rates = joined.drop("busy_s", "covered")
    return rates.fillna(0.0, ["cores", "memory", "processing", "own", "clients"])


def _begin(every_s: float) -> Column:
    return (F.floor(F.col("at") / every_s) * every_s).cast("double").alias("begin")


def topic_windows(rows: DataFrame, every_s: float, by: Sequence[str] = ("topic",)) -> DataFrame:
    """From ``TOPICS``, a row per window of ``every_s`` seconds and topic with messages: rates published and delivered,
    CPU time per message, percentiles of latency."""
    timed = rows.select(_begin(every_s), "*")
    sums = [(F.sum(name) / every_s).alias(f"{name}_per_s") for name in _COUNTS]
    busy = F.expr("coalesce(try_divide(1000 * sum(busy_s), sum(processed)), 0.0D)").alias("processing_ms")
    latency = percentiles(timed, ["begin", *by], SHARES)
    return timed.groupBy("begin", *by).agg(*sums, busy).join(latency, ["begin", *by], "left")


def broker_windows(rows: DataFrame, of_topics: DataFrame, every_s: float) -> DataFrame:
    """From ``BROKERS`` and ``TOPICS``: rates in and out, cores, memory, connections, percentiles of latency."""
    timed = rows.select(_begin(every_s), "*")
    sums = [(F.sum(name) / every_s).alias(f"{name}_per_s") for name in _COUNTS]
    means = [F.avg("cpu").alias("cores"), F.max("memory_bytes").alias("memory_bytes"),
             F.max("connections").alias("connections")]  # fmt: skip
    latency = percentiles(of_topics.select(_begin(every_s), "*"), ["begin", "broker"], SHARES)
    return timed.groupBy("begin", "broker").agg(*sums, *means).join(latency, ["begin", "broker"], "left")


def client_windows(rows: DataFrame, of_topics: DataFrame, every_s: float) -> DataFrame:
    """From ``LINKS`` and ``TOPICS``: a client's number of subscriptions, and the rates of their topics. A subscription
    that existed for a part of a window counts as if it existed for all of it."""
    subscriptions = rows.where("role = 'sub'").select(_begin(every_s), "client", "topic").distinct()
    rate = of_topics.select(_begin(every_s), "*").groupBy("begin", "topic").agg(
        *((F.sum(name) / every_s).alias(name) for name in ("in_msgs", "in_bytes"))
    )  # fmt: skip
    return subscriptions.join(rate, ["begin", "topic"], "left").groupBy("begin", "client").agg(
        F.count("*").alias("subscriptions"),
        *(F.coalesce(F.sum(name), F.lit(0.0)).alias(f"{name}_per_s") for name in ("in_msgs", "in_bytes")),
    )  # fmt: skip


def shared(links: DataFrame, most: int = CROWD) -> DataFrame:
    """Numbers of common subscriptions of pairs of clients: ``client``, ``other``, ``topics``."""
    subscriptions = links.where("role = 'sub' AND topic IS NOT NULL").select("topic", "client").distinct()
    topics = subscriptions.groupBy("topic").count().where(F.col("count").between(2, most)).select("topic")
    rows = subscriptions.join(topics, "topic")
    others = rows.select("topic", F.col("client").alias("other"))
    return (
        rows.join(others, "topic").where("client < other").groupBy("client", "other").agg(F.count("*").alias("topics"))
    )


def workload(rates: DataFrame, links: DataFrame, brokers: DataFrame) -> dict[str, DataFrame]:
    """The four tables of a workload: topics with links or publications, clients, brokers, links."""
    with_topic = links.where("topic IS NOT NULL")
    names = with_topic.select("topic").union(rates.select("topic")).distinct()
    numbers = ["rate", "size_bytes", "processing_ms", "out_bytes", "relayed"]
    filled = names.join(rates, "topic", "left").fillna(0.0, numbers)
    return {
        "topics": filled.select(F.col("topic").alias("id"), *numbers[:3], "out_rate", *numbers[3:]),
        "clients": links.select(F.col("client").alias("id")).distinct(),
        "brokers": brokers.select(F.col("broker").alias("id")).distinct(),
        "links": with_topic.select("topic", "client", "role").distinct(),
    }
