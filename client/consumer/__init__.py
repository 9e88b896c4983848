"""Reading: partitions from an offset on, fetched ahead, alone or as a member of a group.

In: topics, partitions, a group's name.
Out: records in offset order, without gap or repetition.
May import: client, client.api, client.session, partition, partition.api, partition.records.
"""
