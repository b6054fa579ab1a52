"""An AdmissionReview in, an AdmissionReview out (admission.k8s.io/v1). Pure.

A pod is always let in: refusing is the business of policies.
"""

import base64
from typing import Any

import msgspec

from deviceplugin.serving.call_body import Size, too_many
from libvgpu.decoding import json_decoder

from .pod_patch import PodRules, patch

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"


class ReviewError(ValueError):
    """What was sent is no review that can be answered; the text says why."""


class _Request(msgspec.Struct):
    uid: str
    object: dict[str, Any] | None = None


class _Review(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    kind: str
    request: _Request


_REVIEW = json_decoder(_Review)


def answer(sent: bytes, rules: PodRules) -> bytes:
    """Returns the review with its response.

    Args:
        sent: the body of the API server's call.

    Raises:
        ReviewError: it is not JSON of this form, of another version, or too large.
    """
    why = too_many(sent, Size.OBJECT)
    if why:
        raise ReviewError(f"the body is not an {KIND} of a pod: {why}")
    try:
        review = _REVIEW.decode(sent)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ReviewError(f"the body is not an {KIND}: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise ReviewError(
            f"the body is {review.api_version} {review.kind}, "
            f"and only {API_VERSION} {KIND} is known"
        )
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
    operations = patch(review.request.object or {}, rules)
    if operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(operations)).decode()
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
