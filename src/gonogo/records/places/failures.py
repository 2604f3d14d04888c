"""What a store or its client refuses → one line that says what to do.

The client's own words are never shown: they hold whole requests and answers.
"""

from __future__ import annotations

import re

from gonogo.errors import InputError
from gonogo.records.places.settings import NO_SOURCE, Settings

CREDENTIALS = (
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenRefreshRequired",
    "AuthorizationHeaderMalformed", "InvalidSecurity",
)  # fmt: skip


class StoreAway(InputError):
    """A store that does not answer, or says that it cannot just now: it may be back in a moment."""


def find_code(error: BaseException) -> str:
    """The store's own word for what is wrong, as in NoSuchBucket; empty where it said none."""
    found = re.search(r"<Code>(\w{1,60})</Code>", str(error))
    return found[1] if found else ""


def tell_failure(error: BaseException, place: object, bucket: str, settings: Settings) -> InputError:
    """The line for an error of the client."""
    text, code = str(error), find_code(error)
    where = settings.endpoint or f"AWS in {settings.region}"
    status = re.search(r"status code: (\d{3})", text)
    answer = " ".join(filter(None, [status and status[1], code])) or type(error).__name__
    if code == "NoSuchBucket":
        return InputError(f"{place}: there is no bucket {bucket} at {where}. Create it, or check AWS_ENDPOINT_URL")
    if code == "RequestTimeTooSkewed":
        return InputError(
            f"{place}: the clock of this machine differs too much from the store's ({code}). Set it, for instance "
            "by: timedatectl set-ntp true"
        )
    if code in CREDENTIALS:
        return InputError(
            f"{place}: {where} refuses the credentials from {settings.source} ({code}). Check "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if status and status[1] in ("401", "403") and settings.source == NO_SOURCE:
        return InputError(
            f"{place}: {where} wants credentials ({answer}), and there is {settings.source} that has any. Set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if status and status[1] in ("401", "403"):
        return InputError(
            f"{place}: {where} does not allow this to the credentials from {settings.source} ({answer}). It takes "
            "s3:ListBucket, s3:GetObject and, to write, s3:PutObject and s3:DeleteObject"
        )
    if "redirect" in text and "region" in text:
        return InputError(f"{place}: bucket {bucket} is not in region {settings.region}. Set AWS_REGION to its own")
    if "169.254." in text or "credential" in text.lower():
        return InputError(f"{place}: no credentials were found. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if status is None and ("error sending request" in text or "HTTP error" in text):
        return StoreAway(
            f"{place}: {where} cannot be reached, tried {settings.attempts} times. Check AWS_ENDPOINT_URL, and "
            "that the store is running"
        )
    kind = StoreAway if status and status[1].startswith("5") else InputError
    return kind(f"{place}: {where} failed ({answer}), tried up to {settings.attempts} times. Try again later")
