"""What an API server says when it refuses, as values."""

from typing import Any


class ApiFailure(Exception):  # noqa: N818 - as the API's own word
    """A call that failed.

    Attributes:
        status: of HTTP.
        reason: as machines read it.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message

    def body(self) -> dict[str, Any]:
        """Returns the object of the answer."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.status,
        }


def bad_request(message: str) -> ApiFailure:
    """The call makes no sense."""
    return ApiFailure(400, "BadRequest", message)


def not_found(what: str) -> ApiFailure:
    """There is no such thing."""
    return ApiFailure(404, "NotFound", f"{what} not found")


def conflict(message: str) -> ApiFailure:
    """It would undo what somebody else did."""
    return ApiFailure(409, "Conflict", message)


def exists(what: str) -> ApiFailure:
    """One of this name is there."""
    return ApiFailure(409, "AlreadyExists", f"{what} already exists")


def expired(message: str) -> ApiFailure:
    """The version is too old; who follows must list again."""
    return ApiFailure(410, "Expired", message)


def invalid(message: str) -> ApiFailure:
    """It is not what such an object may be."""
    return ApiFailure(422, "Invalid", message)
