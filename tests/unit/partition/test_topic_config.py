from stockade.partition.api.topics import TopicConfig, as_request


def test_a_whole_configuration_without_new_settings_is_a_request_that_older_nodes_accept() -> None:
    given = as_request(TopicConfig(retention_bytes=7))
    assert given["retention_bytes"] == 7
    assert not {name for name in given if name.startswith("local_")}
    assert as_request(TopicConfig(local_retention_ms=0))["local_retention_ms"] == 0
