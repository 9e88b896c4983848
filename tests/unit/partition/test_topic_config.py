from stockade.partition.api.topics import TopicConfig, as_request


def test_a_request_with_a_whole_configuration_is_one_that_older_nodes_take_if_it_says_nothing_new() -> None:
    given = as_request(TopicConfig(retention_bytes=7))
    assert given["retention_bytes"] == 7
    assert not {name for name in given if name.startswith("local_")}
    assert as_request(TopicConfig(local_retention_ms=0))["local_retention_ms"] == 0
