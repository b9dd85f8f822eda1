"""The secret that the nodes share, as it is now. A file may bring another one while a node runs."""


class SharedSecret:
    """Holds the secret for everything that proves it or checks a proof.

    Attributes:
        value: its bytes; empty if there is none.
    """

    def __init__(self, value: str) -> None:
        self.value = value.encode()

    def replace(self, value: str) -> None:
        """Use another one from now on. Links that are up stay: they were proved with the old."""
        self.value = value.encode()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return "SharedSecret(...)"
