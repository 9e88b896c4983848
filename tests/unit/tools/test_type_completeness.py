from typing import Any

import pytest
from type_completeness import faults

KNOWN = {"isExported": True, "isTypeKnown": True, "isTypeAmbiguous": False, "diagnostics": []}


def report(**symbol: Any) -> dict[str, Any]:
    return {"typeCompleteness": {"symbols": [{"name": "stockade.known", **KNOWN}, {**KNOWN, **symbol}]}}


@pytest.mark.parametrize("unknown", [{"isTypeKnown": False}, {"isTypeAmbiguous": True}])
def test_a_public_name_without_a_type_is_named_with_the_reason(unknown: dict[str, bool]) -> None:
    said = report(name="stockade.x.y", diagnostics=[{"message": "Type is missing\n  Inferred is int"}], **unknown)
    assert list(faults(said, with_spark=False)) == ["stockade.x.y: Type is missing"]


def test_a_fault_that_only_follows_from_another_name_is_left_out() -> None:
    said = report(name="stockade.x.y", isTypeKnown=False, diagnostics=[{"message": "Type is missing"}])
    follows = {**KNOWN, "isTypeKnown": False, "diagnostics": [{"message": 'Type of "y" is partially unknown'}]}
    said["typeCompleteness"]["symbols"].append({"name": "stockade.z", **follows})
    assert list(faults(said, with_spark=False)) == ["stockade.x.y: Type is missing"]


def test_the_type_of_a_name_that_is_not_public_may_be_unknown() -> None:
    assert not list(faults(report(name="other.z", isExported=False, isTypeKnown=False), with_spark=True))


@pytest.mark.parametrize("with_spark", [True, False])
def test_names_of_spark_are_looked_at_where_spark_is(with_spark: bool) -> None:
    said = report(name="stockade.spark.source.tasks.read", isTypeKnown=False)
    assert len(list(faults(said, with_spark=with_spark))) == with_spark
