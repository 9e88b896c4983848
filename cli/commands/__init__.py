"""Commands about data and the cluster: topics, produce, consume, pipeline, cluster, doctor, refused, metrics.

In: options and arguments. Out: tables, JSON, exit codes. Each file is one command or group.
May import: cli, cli.local_cluster, cli.node, cli.orders, cli.ui, client, client.api, client.consumer,
client.producer, client.producer.queue, client.session, client.transport, cluster, cluster.access, partition,
partition.api, partition.log, spark.pipelines, spark.pipelines.audit, spark.sink.
"""
