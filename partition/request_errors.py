"""Refusals of who asks, or in what form, whatever it is that is asked: a part of the tree in errors.py."""

from .refusal import StockadeError


class Unauthenticated(StockadeError):
    """No bearer token, or one that the cluster does not know."""

    code, http_status, title = "UNAUTHENTICATED", 401, "Credentials are missing or wrong"


class PermissionDenied(StockadeError):
    """The token is known but may not do this."""

    code, http_status, title = "PERMISSION_DENIED", 403, "Not allowed"


class MethodNotAllowed(StockadeError):
    """The Allow header lists the methods."""

    code, http_status, title = "METHOD_NOT_ALLOWED", 405, "The route does not know this method"


class NotAcceptable(StockadeError):
    """Fields: available (media types)."""

    code, http_status, title = "NOT_ACCEPTABLE", 406, "No such representation"
