"""Refusals of who asks, or in what form, whatever it is that is asked: a part of the tree in errors.py."""

from .refusal import StockadeError


class CorruptMessage(
    StockadeError, code="CORRUPT_MESSAGE", http_status=400, title="The bytes of the batch are damaged", retriable=True
):
    """The body is not a readable Arrow stream. Fields: reason, crc (CRC-32C of the bytes received, or None)."""

    def __init__(self, reason: str, crc: int | None = None) -> None:
        super().__init__(reason, reason=reason, crc=crc)


class Unauthenticated(StockadeError, code="UNAUTHENTICATED", http_status=401, title="Credentials are missing or wrong"):
    """No bearer token, or one that the cluster does not know."""


class PermissionDenied(StockadeError, code="PERMISSION_DENIED", http_status=403, title="Not allowed"):
    """The token is known but may not do this."""


class MethodNotAllowed(
    StockadeError, code="METHOD_NOT_ALLOWED", http_status=405, title="The route does not know this method"
):
    """The Allow header lists the methods."""


class NotAcceptable(StockadeError, code="NOT_ACCEPTABLE", http_status=406, title="No such representation"):
    """Fields: available (media types)."""


class MessageTooLarge(StockadeError, code="MESSAGE_TOO_LARGE", http_status=413, title="The batch is too large"):
    """Fields: limit, unit (bytes, records)."""


class UnsupportedMediaType(
    StockadeError, code="UNSUPPORTED_MEDIA_TYPE", http_status=415, title="The body's type is not understood here"
):
    """Fields: accepted (content types)."""


class HeadersTooLarge(
    StockadeError, code="HEADERS_TOO_LARGE", http_status=431, title="The request's headers are too large"
):
    """Fields: limit (bytes)."""


class NotFound(StockadeError, code="NOT_FOUND", http_status=404, title="Nothing here"):
    """Fields: what (route, ticket, producer, node, stage)."""

    def __init__(self, detail: str | None = None, what: str | None = None) -> None:
        super().__init__(detail or (f"No such {what}" if what else None), what=what)
