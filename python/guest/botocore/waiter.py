"""Waiters: ask until something is so."""

import time

from botocore import rest_of
from botocore.exceptions import ClientError, WaiterError


class Waiter:
    """Asks with `method` until the status of the answer means success."""

    delay = 5
    max_attempts = 20

    def __init__(self, name, method, states):
        self.name = name
        self._method, self._states = method, states
        self.config = self

    def wait(self, **kwargs):
        """Returns once it is so; raises `WaiterError` if it will not be, or not in time."""
        given = kwargs.pop("WaiterConfig", {})
        delay, most = given.get("Delay", self.delay), given.get("MaxAttempts", self.max_attempts)
        accepted = None
        for attempt in range(1, most + 1):
            try:
                answer = self._method(**kwargs)
            except ClientError as error:
                answer = error.response
            status = answer["ResponseMetadata"].get("HTTPStatusCode")
            state = self._states.get(status)
            if state == "success":
                return
            if state:
                accepted = f"Previously accepted state: Matched expected HTTP status code: {status}"
            elif "Error" in answer:
                error = answer["Error"]
                reason = f"An error occurred ({error.get('Code', 'Unknown')}): {error.get('Message', 'Unknown')}"
                raise WaiterError(name=self.name, reason=reason, last_response=answer)
            if attempt == most:
                reason = f"Max attempts exceeded. {accepted}" if accepted else "Max attempts exceeded"
                raise WaiterError(name=self.name, reason=reason, last_response=answer)
            time.sleep(delay)


__getattr__ = rest_of(__name__)
